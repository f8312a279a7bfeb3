  vector<lower=0>[T] group_sd = group_sd_of(group_sd_raw, prior_group_sd);
  vector[P] group_correlation = tanh(group_partial);
  vector[J] group_effect = effects_of(
      T, group_raw, group_sd, group_partial, group_information,
      group_estimate - group_mean * coefficient, (T > S) * intercept, group_free,
      group_apart, overlap, overlap_effect, overlap_row, group_column);
