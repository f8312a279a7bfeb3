/**
 * Coordinates in which the chain walks through group effects: `raw`, standard normal near
 * the posterior. They change the way through the posterior and not the posterior, whatever
 * information and estimate are: effects_lpdf holds the Jacobian, and so does Stan's
 * offset and multiplier.
 *
 * Near the mode the records of group j say: intercept + effect_j is about estimate_j, with
 * precision information_j. Given the sd of the effects, intercept and effects then have
 * normal distributions, whose means and sds are used here. Groups that say much come out
 * centred, groups that say little non-centred (Papaspiliopoulos, Roberts & Skoeld 2007).
 * information = 0 is non-centred: effect = sd * raw.
 *
 * Args, in all functions:
 *   sd            of the effects
 *   information   J precisions
 *   estimate      J estimates, less the part of the covariates
 *   prior         location and scale of the intercept
 */

// With half-normal(scale) for its prior, near a normal distribution in raw but for its
// lower tail, which ends like that of log(sd). Empty without groups.
vector group_sd_of(vector raw, real scale) {
  return scale * log1p_exp(raw);
}
real group_sd_lpdf(vector raw, real scale) {
  return std_normal_lpdf(log1p_exp(raw)) + sum(log_inv_logit(raw));
}

// precision of each estimate as one of the intercept
vector share_of_group(real sd, vector information) {
  return information ./ (1 + information * square(sd));
}
real intercept_offset(real sd, vector information, vector estimate, vector prior) {
  if (sum(information) == 0) return 0;
  vector[size(information)] share = share_of_group(sd, information);
  real precision = inv_square(prior[2]);
  return (precision * prior[1] + dot_product(share, estimate)) / (precision + sum(share));
}
// unit: the multiplier without groups
real intercept_multiplier(real sd, vector information, vector prior, real unit) {
  if (sum(information) == 0) return unit;
  return inv_sqrt(inv_square(prior[2]) + sum(share_of_group(sd, information)));
}

// estimate: less the intercept, too
vector effects_of(vector raw, real sd, vector information, vector estimate) {
  return square(sd) * share_of_group(sd, information) .* estimate
         + sd * inv_sqrt(1 + information * square(sd)) .* raw;
}
// effects ~ normal(0, sd), seen from raw, up to a constant
real effects_lpdf(vector effect, real sd, vector information) {
  if (size(effect) == 0) return 0;
  return -0.5 * (dot_self(effect / sd) + sum(log1p(information * square(sd))));
}
