"""Mathematical answers: read in many notations, and compared by value; knows no trajectory."""
