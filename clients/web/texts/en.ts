/** The sentences about privacy in English; src/explain.ts fills in the numbers. */
export default {
  sent_clear: "Your answer is put into a sealed envelope, together with {others} more envelopes of invented answers and empty ones. Who mixes the envelopes cannot open them; who opens them cannot tell whose they are. If these two work together, they can learn your answer.",
  sent_clear_one: "Your answer is put into a sealed envelope. Who mixes the envelopes of all people cannot open them; who opens them cannot tell whose they are. If these two work together, they can learn your answer.",
  sent_code: "Your answer itself is not sent, but a code made from a part of it: in a sealed envelope, together with {others} more envelopes of invented codes and empty ones. Who mixes the envelopes cannot open them; who opens them cannot tell whose they are. If these two work together, they can test guesses, and so learn your answer.",
  sent_random: "Your answer is changed at random before it is sealed. Even if all work together, what you sent raises or lowers the odds of any guess by a factor of at most {factor}.",
  sent_random_little: "Your answer is changed at random before it is sealed. If all work together, they may still learn it from what you sent.",
  result: "Whatever you answer changes the chance of any published result by a factor of at most {factor}, except with a probability of 1 in {odds}, as long as {users} people take part honestly.",
  result_local: "Whatever you answer changes the chance of any published result by a factor of at most {factor}.",
  participation: "That you took part is not hidden.",
  once: "You can answer once.",
  recomputed: "This page worked this out itself, from the numbers in the question.",
  pinned: "Who made this page checked these numbers when it was made; the page did not work them out itself.",
};
