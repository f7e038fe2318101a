/* SPDX-License-Identifier: MIT
 *
 * Hyper-parameters and steps of tables.
 */
#include "kernels/rules.h"
#include "extras/library/model.h"

/* Sets a hyper-parameter of one table, or only asks whether it could. */
static int set_one(struct embfuse_model *m, int32_t table, const char *name, double value, bool ask,
                   struct embfuse_error *why) {
    const struct rule_info *info = rule_info_of(m->shapes[table].rule);
    const int k = rule_hyper_of(m->shapes[table].rule, name);
    if (k < 0)
        return said(why, EMBFUSE_UNKNOWN, "table %d: %s has no hyper-parameter '%.60s'", table,
                    info->name, name);
    const struct rule_param p = rule_hyper(info, k);
    const float rounded = (float)value;
    if (!rule_hyper_takes(&p, rounded) || (rounded == 0 && value != 0))
        return said(why, EMBFUSE_INVALID, "table %d: %s is %s in single precision, not %g", table,
                    name, p.range, value);
    if (ask) return 0;
    *rule_value(&m->rules[table], k) = rounded;
    m->shapes[table].adjusts = rule_adjusts(&m->rules[table]);
    return 0;
}

static int set_all(struct embfuse_model *m, const char *name, double value, bool ask,
                   struct embfuse_error *why) {
    int status = said(why, EMBFUSE_UNKNOWN, "no rule has a hyper-parameter '%.60s'", name);
    for (int32_t t = 0; t < m->num_tables; t++)
        if (rule_hyper_of(m->shapes[t].rule, name) >= 0 &&
            (status = set_one(m, t, name, value, ask, why)))
            break;
    return status;
}

int set_hyper(struct embfuse_model *m, int32_t table, const char *name, double value,
              struct embfuse_error *why) {
    if (table == -1) {
        const int status = set_all(m, name, value, true, why);
        return status ? status : set_all(m, name, value, false, why);
    }
    if (!has_table(m, table)) return no_table(table, why);
    return set_one(m, table, name, value, false, why);
}

int embfuse_set(struct embfuse_model *m, int32_t table, const char *name, double value,
                struct embfuse_error *why) {
    IN_CALL(m, why);
    return name ? set_hyper(m, table, name, value, why)
                : said(why, EMBFUSE_INVALID, "name is NULL");
}

int embfuse_get(const struct embfuse_model *m, int32_t table, const char *name, double *out,
                struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!has_table(m, table)) return no_table(table, why);
    if (!name || !out) return said(why, EMBFUSE_INVALID, "name or out is NULL");
    const struct rule_info *info = rule_info_of(m->shapes[table].rule);
    const int k = rule_hyper_of(m->shapes[table].rule, name);
    if (k < 0)
        return said(why, EMBFUSE_UNKNOWN, "table %d: %s has no hyper-parameter '%.60s'", table,
                    info->name, name);
    struct rule copy = m->rules[table];
    *out = (double)*rule_value(&copy, k);
    return 0;
}

const char *embfuse_hyper_name(const struct embfuse_model *m, int32_t table, int32_t i) {
    if (!m || i < 0 || !has_table(m, table)) return NULL;
    const struct rule_info *info = rule_info_of(m->shapes[table].rule);
    for (int k = 0; k < RULE_HYPERS; k++) {
        const char *name = rule_hyper(info, k).name;
        if (name && i-- == 0) return name;
    }
    return NULL;
}

int embfuse_get_steps(const struct embfuse_model *m, int32_t table, int64_t *out,
                      struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!has_table(m, table)) return no_table(table, why);
    if (!out) return said(why, EMBFUSE_INVALID, "out is NULL");
    *out = m->steps[table].number;
    return 0;
}

int embfuse_set_steps(struct embfuse_model *m, int32_t table, int64_t steps,
                      struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!has_table(m, table)) return no_table(table, why);
    if (steps < 0 || steps > MODEL_STEPS_MAX)
        return said(why, EMBFUSE_INVALID, "table %d: %lld steps; 0 to %lld are possible", table,
                    (long long)steps, (long long)MODEL_STEPS_MAX);
    m->steps[table].number = steps;
    return 0;
}
