  vector[T] group_sd_raw;
  vector[P] group_partial;
  vector[J] group_raw;
  vector<offset=slope_offset(
             slope_part,
             effects_of(S, group_raw, group_sd_of(group_sd_raw, prior_group_sd),
                        group_partial, group_information, group_estimate, 0, group_free,
                        group_apart, overlap, overlap_effect, overlap_row, group_column)),
         multiplier=unit>[K] coefficient;
