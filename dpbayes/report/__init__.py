"""Tables, figures and files of the confidential side."""
