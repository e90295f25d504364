"""What every folder may import, the standard library aside: nouns, the contract, errors, files."""
