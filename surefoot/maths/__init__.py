"""Pure functions of tensors; axes are T time, N rows, B batch."""
