"""Building blocks that several protocols share: kinds of noise, hashing, and the way from counts to estimates."""
