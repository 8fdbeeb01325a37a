return seen()
