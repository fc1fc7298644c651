"""The shuffler: stores sealed reports, shuffles the messages of a round, delivers and then deletes them."""
