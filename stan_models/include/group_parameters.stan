  vector[J > 0] group_sd_raw;
  real<offset=intercept_offset(sum(group_sd_of(group_sd_raw, prior_group_sd)),
                               group_information,
                               group_estimate - group_mean * coefficient,
                               prior_intercept),
       multiplier=intercept_multiplier(sum(group_sd_of(group_sd_raw, prior_group_sd)),
                                       group_information, prior_intercept,
                                       unit)> intercept;
  vector[J] group_raw;
