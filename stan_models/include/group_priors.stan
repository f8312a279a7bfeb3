  group_sd_raw ~ group_sd(prior_group_sd);
  target += partial_lpdf(group_partial | partial_shape);
  target += effects_lpdf(group_effect | group_sd, group_partial, group_information,
                         group_free, group_apart, group_column);
