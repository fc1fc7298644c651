/** What the sentences about privacy add where chance decides who sends more envelopes. */
export default {
  en: { more: "Chance alone decides whether this device adds {others} more envelopes of invented answers and empty ones; their number shows it." },
  de: { more: "Allein der Zufall entscheidet, ob dieses Gerät {others} weitere Umschläge mit erfundenen Antworten und leere dazulegt; ihre Zahl zeigt es." },
};
