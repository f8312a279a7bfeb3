  real<offset=intercept_offset(group_raw, group_sd_of(group_sd_raw, prior_group_sd),
                               group_partial, group_information,
                               group_estimate - group_mean * coefficient, prior_intercept,
                               group_free, group_apart, overlap, overlap_effect,
                               overlap_row, S, group_column),
       multiplier=intercept_multiplier(group_sd_of(group_sd_raw, prior_group_sd),
                                       group_partial, group_information, prior_intercept,
                                       unit, S, group_column)> intercept;
