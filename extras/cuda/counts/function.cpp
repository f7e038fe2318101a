/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/function.h"

namespace counts {

static void write_models(FILE *out, const Function &f, const std::vector<Model> &models) {
    fprintf(out, ", \"models\": [");
    for (size_t i = 0; i < models.size(); i++) {
        const Model &m = models[i];
        const l2_counts &c = f.caches[i];
        fprintf(out,
                "%s{\"device\": \"%s\", \"part\": %d, \"bytes\": %lu, \"resident\": %lu, "
                "\"requests\": %lu, \"hits\": %lu, \"misses\": %lu, \"read\": %lu, "
                "\"written\": %lu, \"prefetched\": %lu, \"present\": %lu, \"timely\": %lu, "
                "\"late\": %lu, \"early\": %lu, \"dirty\": %lu}",
                i ? ", " : "", m.device->name, m.part, m.bytes, f.resident[i], c.requests, c.hits,
                c.misses, c.read, c.written, c.prefetched, c.present, c.timely, c.late, c.early,
                l2_dirty(m.cache));
    }
    fprintf(out, "]");
}

static void write_lines(FILE *out, const Function &f) {
    const char *between = "";
    fprintf(out, ", \"lines\": [");
    for (auto &l : f.lines) {
        fprintf(out, "%s{\"source\": \"%s\", \"line\": %d, ", between, l.first.first.c_str(),
                l.first.second);
        l.second.write(out);
        fprintf(out, "}");
        between = ", ";
    }
    fprintf(out, "]");
}

void write_function(FILE *out, const char *labels, const Function &f,
                    const std::vector<Model> &models, bool by_line) {
    fprintf(out,
            "{%s\"function\": \"%s\", \"launches\": %lu, \"blocks\": %lu, \"warps\": %lu, "
            "\"compulsory_read\": %lu, \"compulsory_written\": %lu, \"atomics\": %lu, "
            "\"most_per_address\": %lu, \"chain\": %lu, ",
            labels, f.name.c_str(), f.launches, f.blocks, f.warps, f.compulsory_read,
            f.compulsory_written, f.atomics, f.most_per_address, f.chain);
    f.totals.write(out);
    if (by_line) write_lines(out, f);
    if (!models.empty()) write_models(out, f, models);
    fprintf(out, "}\n");
}

} // namespace counts
