/** The sentences about privacy in German; src/explain.ts fills in the numbers. */
export default {
  sent_clear: "Ihre Antwort kommt in einen versiegelten Umschlag, zusammen mit {others} weiteren Umschlägen mit erfundenen Antworten und leeren. Wer die Umschläge mischt, kann sie nicht öffnen; wer sie öffnet, weiß nicht, von wem sie sind. Wenn diese beiden zusammenarbeiten, können sie Ihre Antwort erfahren.",
  sent_clear_one: "Ihre Antwort kommt in einen versiegelten Umschlag. Wer die Umschläge aller Personen mischt, kann sie nicht öffnen; wer sie öffnet, weiß nicht, von wem sie sind. Wenn diese beiden zusammenarbeiten, können sie Ihre Antwort erfahren.",
  sent_code: "Ihre Antwort selbst wird nicht gesendet, sondern ein Code aus einem Teil davon: in einem versiegelten Umschlag, zusammen mit {others} weiteren Umschlägen mit erfundenen Codes und leeren. Wer die Umschläge mischt, kann sie nicht öffnen; wer sie öffnet, weiß nicht, von wem sie sind. Wenn diese beiden zusammenarbeiten, können sie Vermutungen prüfen und so Ihre Antwort erfahren.",
  sent_random: "Ihre Antwort wird zufällig verändert, bevor sie versiegelt wird. Selbst wenn alle zusammenarbeiten, ändert das, was Sie gesendet haben, die Chancen jeder Vermutung höchstens um den Faktor {factor}.",
  sent_random_little: "Ihre Antwort wird zufällig verändert, bevor sie versiegelt wird. Wenn alle zusammenarbeiten, können sie sie aus dem, was Sie gesendet haben, womöglich trotzdem erfahren.",
  result: "Was auch immer Sie antworten: Die Wahrscheinlichkeit jedes veröffentlichten Ergebnisses ändert sich dadurch höchstens um den Faktor {factor}, außer mit einer Wahrscheinlichkeit von 1 zu {odds}, solange {users} Personen ehrlich teilnehmen.",
  result_local: "Was auch immer Sie antworten: Die Wahrscheinlichkeit jedes veröffentlichten Ergebnisses ändert sich dadurch höchstens um den Faktor {factor}.",
  participation: "Dass Sie teilgenommen haben, bleibt nicht verborgen.",
  once: "Sie können einmal antworten.",
  recomputed: "Diese Seite hat das selbst nachgerechnet, aus den Zahlen der Frage.",
  pinned: "Wer diese Seite erstellt hat, hat diese Zahlen dabei geprüft; die Seite hat sie nicht selbst nachgerechnet.",
};
