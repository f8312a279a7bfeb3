  // public: group effects and how they belong to records, see include/group_effects.stan
  int<lower=0> J;  // effects, in
  int<lower=0> T;  // columns, of which the first
  int<lower=0> S;  // are slopes, of the columns of
  matrix[S > 0 ? n : 0, S] slope_X;
  array[T > 0 ? n : 0, T] int<lower=1, upper=J> group_index;
  array[T, 5] int<lower=0> group_column;
  int<lower=0> P;  // correlations
  vector<lower=0>[P] partial_shape;
  // public: what of their coordinates hangs on groups and covariates alone
  matrix[J, K] group_mean;
  vector<lower=0>[T] group_free;
  int<lower=0, upper=J> D;  // effects of all columns but the last
  matrix<lower=0>[D, T] group_apart;
  int<lower=0> O;
  vector[O] overlap;
  array[O] int<lower=1, upper=J> overlap_effect;
  array[O > 0 ? J + 1 : 0] int<lower=1> overlap_row;
  int<lower=0, upper=J> Q;  // effects of slopes
