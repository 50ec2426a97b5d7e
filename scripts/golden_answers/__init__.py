"""Golden answers: do two checkouts say the same of every pair of nets that they compare?"""
