"""Where a run happens: local, in this process."""
