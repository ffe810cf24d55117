"""What becomes of records that do not decode: the policy, the letters, where they go, how they come back."""
