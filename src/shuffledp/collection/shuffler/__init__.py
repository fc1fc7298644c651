"""The shuffler: takes in sealed reports durably, mixes all messages of a round, hands them to the analyzer, forgets."""
