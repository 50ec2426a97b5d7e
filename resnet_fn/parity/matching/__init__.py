"""Which parameter and layer of a net is which of the reference's."""
