/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "kernels/rules.h"
#include "extras/library/model.h"

/* --- is a schedule well formed? NULL: yes; otherwise what is wrong with it */

static const char *bad_milestones(const struct embfuse_schedule *s, int64_t least) {
    if (s->num_milestones < 0 || (s->num_milestones && !s->milestones))
        return "num_milestones is below 0, or milestones is NULL";
    for (int32_t i = 0; i < s->num_milestones; i++)
        if (s->milestones[i] < (i ? s->milestones[i - 1] : least))
            return "milestones are steps in rising order, of a sequence from 1, otherwise from 0";
    return NULL;
}

static const char *bad_single(const struct embfuse_schedule *s) {
    if (s->size != sizeof *s) return "size is not sizeof(struct embfuse_schedule)";
    switch (s->kind) {
    case EMBFUSE_SCHEDULE_STEP:
        if (s->steps < 1) return "steps is at least 1";
        break;
    case EMBFUSE_SCHEDULE_MULTISTEP: {
        const char *bad = bad_milestones(s, 0);
        if (bad) return bad;
        break;
    }
    case EMBFUSE_SCHEDULE_EXPONENTIAL: break;
    case EMBFUSE_SCHEDULE_CONSTANT:
        if (s->steps < 0) return "steps is at least 0";
        return isfinite(s->from) ? NULL : "from is finite";
    case EMBFUSE_SCHEDULE_LINEAR:
        if (s->steps < 0) return "steps is at least 0";
        return isfinite(s->from) && isfinite(s->to) ? NULL : "from and to are finite";
    case EMBFUSE_SCHEDULE_POLYNOMIAL:
        if (s->steps < 1) return "steps is at least 1";
        return isfinite(s->power) && s->power >= 0 ? NULL : "power is at least 0";
    case EMBFUSE_SCHEDULE_COSINE: /* its period is twice as long */
        if (s->steps < 1 || s->steps > INT64_MAX / 2) return "steps is 1 to 2^62";
        return isfinite(s->least) ? NULL : "least is finite";
    default: return "kind is no embfuse_schedule_kind";
    }
    return isfinite(s->gamma) && s->gamma >= 0 ? NULL : "gamma is finite and at least 0";
}

static const char *bad_schedule(const struct embfuse_schedule *s) {
    if (!s) return "it is NULL";
    if (s->size != sizeof *s || s->kind != EMBFUSE_SCHEDULE_SEQUENCE) return bad_single(s);
    const char *bad = bad_milestones(s, 1);
    if (!bad && !s->parts) bad = "parts is NULL";
    for (int32_t i = 0; !bad && i <= s->num_milestones; i++)
        bad = s->parts[i].kind == EMBFUSE_SCHEDULE_SEQUENCE ? "a part is a sequence"
                                                            : bad_single(&s->parts[i]);
    return bad;
}

/* --- the rate */

/* The milestones that step t has reached. */
static int32_t reached(const struct embfuse_schedule *s, int64_t t) {
    int32_t count = 0;
    while (count < s->num_milestones && s->milestones[count] <= t) count++;
    return count;
}

/* PyTorch's formula; the angle is kept small, so that it stays exact after many periods. */
static double cosine(const struct embfuse_schedule *s, double base, int64_t t) {
    const double angle = M_PI * (double)(t % (2 * s->steps)) / (double)s->steps;
    return s->least + (base - s->least) * (1 + cos(angle)) / 2;
}

static double rate_single(const struct embfuse_schedule *s, double base, int64_t t) {
    const double part = t < s->steps ? (double)t / (double)s->steps : 1;
    switch (s->kind) {
    case EMBFUSE_SCHEDULE_STEP: return base * pow(s->gamma, (double)(t / s->steps));
    case EMBFUSE_SCHEDULE_MULTISTEP: return base * pow(s->gamma, reached(s, t));
    case EMBFUSE_SCHEDULE_EXPONENTIAL: return base * pow(s->gamma, (double)t);
    case EMBFUSE_SCHEDULE_CONSTANT: return t < s->steps ? base * s->from : base;
    case EMBFUSE_SCHEDULE_LINEAR:
        return base * (t < s->steps ? s->from + (s->to - s->from) * part : s->to);
    case EMBFUSE_SCHEDULE_POLYNOMIAL: return base * pow(1 - part, s->power);
    default: return cosine(s, base, t);
    }
}

double embfuse_schedule_rate(const struct embfuse_schedule *s, double base, int64_t t) {
    if (t < 0 || bad_schedule(s)) return (double)NAN;
    if (s->kind != EMBFUSE_SCHEDULE_SEQUENCE) return rate_single(s, base, t);
    const int32_t part = reached(s, t);
    return rate_single(&s->parts[part], base, part ? t - s->milestones[part - 1] : t);
}

/* --- rates of tables */

int embfuse_schedule_set(struct embfuse_model *m, int32_t table, const struct embfuse_schedule *s,
                         double base, struct embfuse_error *why) {
    IN_CALL(m, why);
    const char *bad = bad_schedule(s);
    if (table < -1 || table >= m->num_tables)
        return said(why, EMBFUSE_INVALID, "the model has no table %d", table);
    if (bad) return said(why, EMBFUSE_INVALID, "schedule: %s", bad);
    const int32_t first = table < 0 ? 0 : table, end = table < 0 ? m->num_tables : table + 1;
    for (int32_t t = first; t < end; t++) {
        const struct rule_param lr = rule_hyper(rule_info_of(m->shapes[t].rule), RULE_LR);
        const double rate = embfuse_schedule_rate(s, base, m->steps[t].number);
        if (!rule_hyper_takes(&lr, (float)rate))
            return said(why, EMBFUSE_INVALID, "table %d: lr is %s, not %g", t, lr.range, rate);
    }
    int status = 0;
    for (int32_t t = first; status == 0 && t < end; t++)
        status = set_hyper(m, t, "lr", embfuse_schedule_rate(s, base, m->steps[t].number), why);
    return status;
}
