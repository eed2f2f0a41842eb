"""What users put beside the engine: test instruments, and bridges to other libraries."""
