  // by the records, for the chain alone
  vector<lower=0>[J] group_information;
  vector[J] group_estimate;
  matrix[K, Q] slope_part;
