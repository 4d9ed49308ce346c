"""What users may give as options, and what each value means. Pure: nothing here asks a cluster."""
