"""The vocabulary: everything else speaks in these types, and they import nothing of ours."""
