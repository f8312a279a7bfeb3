/**
 * Group effects: their prior, and coordinates in which the chain walks through them.
 *
 * Effects stand in T columns, one for each intercept and slope of a group term, behind each
 * other in one vector: slopes first, then intercepts, those with most groups last. Row t of
 * `column` is first and last effect of column t; first and last of the columns before it
 * that it is correlated with; number of the correlations before. Given those columns, its
 * effects are normal with mean `known` and sd `own`, from a Cholesky factor made of partial
 * correlations (Lewandowski, Kurowicka & Joe 2009), and z = (effect - known) / own.
 *
 * Coordinates `raw` are standard normal near the posterior. They change the way through
 * the posterior and not the posterior, whatever information and estimate are: effects_lpdf
 * holds the Jacobian, and so does Stan's offset and multiplier.
 *
 * Near the mode the records say of effect j: it is about estimate_j, with precision
 * information_j. Given the sds, and column by column given the columns before, effects then
 * have normal distributions, whose means and sds are used here. Groups that say much come
 * out centred, groups that say little non-centred (Papaspiliopoulos, Roberts & Skoeld 2007).
 * information = 0 is non-centred: z = raw. The coefficients follow after the slopes and the
 * intercept before the last column. What is unknown when it is a column's turn is
 * integrated out: what moves all its effects alike, intercept or coefficient, makes their
 * covariance one of diagonal and rank one; effects nested within its groups are noise.
 *
 * Args, in all functions:
 *   sd, partial    T sds; atanh of the partial correlations
 *   information    J precisions
 *   estimate       J estimates, less the part of the covariates; other columns at 0
 *   free           T variances of what moves all effects of a column and is not known yet
 *   apart          D x T: variance of an estimate by effects nested in its group, of sd 1
 *   overlap        effects of the columns before in an estimate: a sparse matrix, row by row,
 *                  with columns overlap_effect and where rows begin in overlap_row
 *   prior          location and scale of the intercept
 */

// With half-normal(scale) for its prior, near a normal distribution in raw but for its
// lower tail, which ends like that of log(sd).
vector group_sd_of(vector raw, real scale) {
  return scale * log1p_exp(raw);
}
real group_sd_lpdf(vector raw, real scale) {
  return std_normal_lpdf(log1p_exp(raw)) + sum(log_inv_logit(raw));
}
// LKJ, up to a constant: (1 - r^2)^shape, r = tanh(partial), Jacobian and all
real partial_lpdf(vector partial, vector shape) {
  return dot_product(shape, log_inv_logit(2 * partial) + log_inv_logit(-2 * partial));
}

vector known(int t, vector z, vector sd, vector partial, array[,] int column) {
  vector[column[t, 2] - column[t, 1] + 1] found = rep_vector(
      0, column[t, 2] - column[t, 1] + 1);
  real left = sd[t];
  for (s in column[t, 3]:column[t, 4]) {
    real atanh_r = partial[column[t, 5] + s - column[t, 3] + 1];
    found += left * tanh(atanh_r) * z[column[s, 1]:column[s, 2]];
    left /= cosh(atanh_r);
  }
  return found;
}
real own(int t, vector sd, vector partial, array[,] int column) {
  int count = column[t, 4] - column[t, 3] + 1;
  if (count == 0) return sd[t];
  return sd[t] / prod(cosh(partial[(column[t, 5] + 1):(column[t, 5] + count)]));
}
// z of the columns 1..upto, 0 in the others
vector standardised(int upto, vector effect, vector sd, vector partial,
                    array[,] int column) {
  vector[rows(effect)] z = rep_vector(0, rows(effect));
  for (t in 1:upto) {
    z[column[t, 1]:column[t, 2]] = (effect[column[t, 1]:column[t, 2]]
                                    - known(t, z, sd, partial, column))
                                   / own(t, sd, partial, column);
  }
  return z;
}

// precision of an estimate as one of its effect, what is nested within it unknown
vector precision_of(int t, vector sd, vector information, matrix apart,
                    array[,] int column) {
  vector[column[t, 2] - column[t, 1] + 1] found = information[column[t, 1]:column[t, 2]];
  if (column[t, 2] > rows(apart)) return found;
  return found ./ (1 + found .* (apart[column[t, 1]:column[t, 2]] * square(sd)));
}
// the same as one of what moves all effects
vector share_of_group(real sd, vector precision) {
  return precision ./ (1 + precision * square(sd));
}
// estimate of column t, less the columns before
vector estimate_of(int t, vector effect, vector estimate, vector overlap,
                   array[] int overlap_effect, array[] int overlap_row,
                   array[,] int column) {
  int a = column[t, 1];
  int b = column[t, 2];
  if (t == 1 || rows(overlap) == 0) return estimate[a:b];
  // csr_matrix_times_vector by running sums: not every engine has it
  vector[rows(overlap) + 1] sums = append_row(
      0, cumulative_sum(overlap .* effect[overlap_effect]));
  return estimate[a:b] - (sums[overlap_row[(a + 1):(b + 1)]] - sums[overlap_row[a:b]]);
}

// effects of the columns 1..upto, 0 in the others; intercept: 0 but for the last column's
vector effects_of(int upto, vector raw, vector sd, vector partial, vector information,
                  vector estimate, real intercept, vector free, matrix apart,
                  vector overlap, array[] int overlap_effect, array[] int overlap_row,
                  array[,] int column) {
  vector[rows(raw)] z = rep_vector(0, rows(raw));
  vector[rows(raw)] effect = z;
  for (t in 1:upto) {
    int a = column[t, 1];
    int b = column[t, 2];
    real tau = own(t, sd, partial, column);
    vector[b - a + 1] mean = known(t, z, sd, partial, column);
    vector[b - a + 1] precision = precision_of(t, sd, information, apart, column);
    vector[b - a + 1] share = share_of_group(tau, precision);
    vector[b - a + 1] left = estimate_of(t, effect, estimate, overlap, overlap_effect,
                                         overlap_row, column) - mean;
    vector[b - a + 1] spread = inv_sqrt(1 + precision * square(tau));
    vector[b - a + 1] walk = raw[a:b];
    if (t == size(column)) left -= intercept;
    if (free[t] > 0) {
      real level = free[t] / (1 + free[t] * sum(share));
      vector[b - a + 1] along = tau * precision .* spread;
      left -= level * dot_product(share, left);
      // by the root of I + level * along * along'
      walk += level * dot_product(along, walk) / (1 + sqrt(1 + level * dot_self(along)))
              * along;
    }
    z[a:b] = tau * share .* left + spread .* walk;
    effect[a:b] = mean + tau * z[a:b];
  }
  return effect;
}
// effects by their prior, seen from raw, up to a constant
real effects_lpdf(vector effect, vector sd, vector partial, vector information, vector free,
                  matrix apart, array[,] int column) {
  real lp = -0.5 * dot_self(standardised(size(column), effect, sd, partial, column));
  for (t in 1:size(column)) {
    real tau = own(t, sd, partial, column);
    vector[column[t, 2] - column[t, 1] + 1] precision = precision_of(
        t, sd, information, apart, column);
    lp -= 0.5 * sum(log1p(precision * square(tau)));
    if (free[t] > 0) {
      real level = free[t] / (1 + free[t] * sum(share_of_group(tau, precision)));
      lp += 0.5 * log1p(level * sum(square(tau * precision)
                                    ./ (1 + precision * square(tau))));
    }
  }
  return lp;
}

// The coefficients, given the effects of slopes, which are the first of all.
// It is a function so that the offset is a vector and no expression: Stan Math 4.9, of CmdStan
// 2.35, writes freed memory for parameters whose offset is an expression. And before CmdStan 2.38
// an empty vector has no slice.
vector slope_offset(matrix slope_part, vector effect) {
  int slope_effects = cols(slope_part);
  if (slope_effects == 0) return rep_vector(0, rows(slope_part));
  return -slope_part * effect[1:slope_effects];
}

// The intercept, given all columns but the last: by the last one's estimates, its effects
// unknown. Where that is no column of intercepts, or without information, 0 and unit.
real intercept_offset(vector raw, vector sd, vector partial, vector information,
                      vector estimate, vector prior, vector free, matrix apart,
                      vector overlap, array[] int overlap_effect,
                      array[] int overlap_row, int slopes, array[,] int column) {
  int t = size(column);
  if (t == slopes || sum(information) == 0) return 0;
  int a = column[t, 1];
  int b = column[t, 2];
  vector[rows(raw)] effect = effects_of(t - 1, raw, sd, partial, information, estimate, 0,
                                        free, apart, overlap, overlap_effect, overlap_row,
                                        column);
  vector[b - a + 1] left = estimate_of(t, effect, estimate, overlap, overlap_effect,
                                       overlap_row, column)
      - known(t, standardised(t - 1, effect, sd, partial, column), sd, partial, column);
  vector[b - a + 1] share = share_of_group(own(t, sd, partial, column), information[a:b]);
  real precision = inv_square(prior[2]);
  return (precision * prior[1] + dot_product(share, left)) / (precision + sum(share));
}
real intercept_multiplier(vector sd, vector partial, vector information, vector prior,
                          real unit, int slopes, array[,] int column) {
  int t = size(column);
  if (t == slopes || sum(information) == 0) return unit;
  vector[column[t, 2] - column[t, 1] + 1] share = share_of_group(
      own(t, sd, partial, column), information[column[t, 1]:column[t, 2]]);
  return inv_sqrt(inv_square(prior[2]) + sum(share));
}
