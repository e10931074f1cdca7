/* Elementary functions with the reference's bits on every machine: no libm function of this kind is used in the engine.
 *
 * The float functions return what glibc returns on processors with fused multiply-add (docs/numerics.md, "libm functions
 * that matter"); none of them needs such an instruction. They set no errno and raise no traps. */
#ifndef GGUFD_OPS_MATH_H
#define GGUFD_OPS_MATH_H

/* Sine and cosine of one angle in radians; NaN for infinities and NaN. */
void math_sincosf(float x, float *sine, float *cosine);

/* Natural logarithm; -inf for 0, NaN for negative x. */
float math_logf(float x);

/* x^y for finite x >= 0 (0^y: 0, 1 or infinity as y is positive, zero or negative); NaN for negative x or any NaN. */
float math_powf(float x, float y);

/* e^x: the exponential of elements that do not fill a group of four. */
float math_expf(float x);

/* The 4-lane exponential of softmax and SiLU, one lane of it; -inf gives 0, NaN gives NaN. */
float math_pexp(float x);

/* Natural logarithm in double, good to about one unit in the last place; -inf for 0, NaN for negative x. */
double math_log(double x);

#endif
