-- waiting: the line, for claim. A function that needs line, front and place.

return {
  open = open_line, take_turn = take_turn, tidy = tidy, others_first = others_first,
  keep = keep, pass = pass, tell = tell, length = length,
}
