/** Of the sentences about privacy, those that differ where the party that mixes the envelopes adds all noise. */
export const ADDED = {
  en: {
    sent_clear_one: "Your answer is put into a sealed envelope. Who mixes the envelopes of all people adds sealed envelopes with invented answers, and cannot open any; who opens them cannot tell whose they are, nor which are invented. If these two work together, they can learn your answer.",
    result: "Whatever you answer changes the chance of any published result by a factor of at most {factor}, except with a probability of 1 in {odds}.",
    trust: "This protection is in the hands of who mixes the envelopes: it comes from the invented answers alone, and nobody else notices if they are missing. From the published result, who mixes can work out exactly how many people gave each answer, but not who gave it.",
    trust_chain: "Several parties mix the envelopes, one after the other, and each adds invented answers. This protection comes from these alone; it holds if one of the parties adds them as agreed and keeps them secret, and nobody else notices if they are missing. All these parties together can work out from the published result exactly how many people gave each answer, but not who gave it.",
  },
  de: {
    sent_clear_one: "Ihre Antwort kommt in einen versiegelten Umschlag. Wer die Umschläge aller Personen mischt, legt versiegelte Umschläge mit erfundenen Antworten dazu und kann keinen öffnen; wer sie öffnet, weiß weder, von wem sie sind, noch welche erfunden sind. Wenn diese beiden zusammenarbeiten, können sie Ihre Antwort erfahren.",
    result: "Was auch immer Sie antworten: Die Wahrscheinlichkeit jedes veröffentlichten Ergebnisses ändert sich dadurch höchstens um den Faktor {factor}, außer mit einer Wahrscheinlichkeit von 1 zu {odds}.",
    trust: "Diesen Schutz hat in der Hand, wer die Umschläge mischt: Er entsteht allein durch die erfundenen Antworten, und niemand sonst bemerkt es, wenn sie fehlen. Wer mischt, kann aus dem veröffentlichten Ergebnis genau berechnen, wie viele Personen welche Antwort gegeben haben, aber nicht, wer sie gegeben hat.",
    trust_chain: "Mehrere Stellen mischen die Umschläge, eine nach der anderen, und jede legt erfundene Antworten dazu. Dieser Schutz entsteht allein durch sie; er gilt, wenn eine der Stellen sie wie vereinbart dazulegt und geheim hält, und niemand sonst bemerkt es, wenn sie fehlen. Alle diese Stellen zusammen können aus dem veröffentlichten Ergebnis genau berechnen, wie viele Personen welche Antwort gegeben haben, aber nicht, wer sie gegeben hat.",
  },
};

/** Where that party also leaves out envelopes at random. */
export const SAMPLED = {
  en: {
    sent_clear_one: "Your answer is put into a sealed envelope. Who mixes the envelopes of all people leaves some of them out at random and adds sealed envelopes with invented answers, and cannot open any; who opens them cannot tell whose they are, nor which are invented. If these two work together, they can learn your answer.",
    result: "Whatever you answer changes the chance of any published result by a factor of at most {factor}.",
    trust: "This protection is in the hands of who mixes the envelopes: it comes from what is left out and invented alone, and nobody else notices if that is not done. From the published result, who mixes can work out exactly how often each answer occurs among the envelopes that were not left out, but not who gave it.",
  },
  de: {
    sent_clear_one: "Ihre Antwort kommt in einen versiegelten Umschlag. Wer die Umschläge aller Personen mischt, lässt einige zufällig weg, legt versiegelte Umschläge mit erfundenen Antworten dazu und kann keinen öffnen; wer sie öffnet, weiß weder, von wem sie sind, noch welche erfunden sind. Wenn diese beiden zusammenarbeiten, können sie Ihre Antwort erfahren.",
    result: "Was auch immer Sie antworten: Die Wahrscheinlichkeit jedes veröffentlichten Ergebnisses ändert sich dadurch höchstens um den Faktor {factor}.",
    trust: "Diesen Schutz hat in der Hand, wer die Umschläge mischt: Er entsteht allein durch das, was weggelassen und erfunden wird, und niemand sonst bemerkt es, wenn das unterbleibt. Wer mischt, kann aus dem veröffentlichten Ergebnis genau berechnen, wie oft jede Antwort in den Umschlägen vorkommt, die nicht weggelassen wurden, aber nicht, wer sie gegeben hat.",
  },
};
