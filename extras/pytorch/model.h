// SPDX-License-Identifier: MIT
//
// A model of the PyTorch module: the description of tables and features, their hyper-parameters, and lookups whose steps
// wait. It owns no array: every call gets the tensors, and binds those that have moved. So copies, checkpoints,
// assignments and functional_call() need no care here.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/custom_class.h>

#include <map>
#include <mutex>
#include <optional>

#include "embfuse.h"

namespace {

using at::Tensor;

// Raises the Python exception that belongs to a status.
void must(int status, const embfuse_error &why) {
    switch (status) {
    case EMBFUSE_OK: return;
    case EMBFUSE_BAD_BATCH: TORCH_CHECK_INDEX(false, why.text);
    case EMBFUSE_INVALID:
    case EMBFUSE_UNKNOWN: TORCH_CHECK_VALUE(false, why.text);
    case EMBFUSE_REFUSED: TORCH_CHECK_NOT_IMPLEMENTED(false, why.text);
    default: TORCH_CHECK(false, why.text);
    }
}

const std::map<at::ScalarType, int32_t> types = {
    {at::kFloat, EMBFUSE_FP32}, {at::kBFloat16, EMBFUSE_BF16}, {at::kHalf, EMBFUSE_FP16}};

int32_t type_of(at::ScalarType type, const char *what) {
    const auto found = types.find(type);
    TORCH_CHECK_TYPE(found != types.end(), what, " are float32, bfloat16 or float16, not ", type);
    return found->second;
}

at::ScalarType tensor_type(int64_t type) {
    for (const auto &pair : types)
        if (pair.second == type) return pair.first;
    TORCH_CHECK_VALUE(false, "type ", type, " has no tensor");
}

// What a lookup leaves to its step. The offsets include the last one.
struct Lookup {
    std::vector<Tensor> arrays; // of all tables: the weights, then the states
    Tensor steps;               // [tables] int64 on the host
    Tensor ids, offsets, weights /* per sample, or undefined */, winners, grad;
    std::vector<bool> trains; // [tables] false: the table is frozen
};

struct Table {
    int64_t rows, dim;
    int32_t rounding;
    std::string rule;
};

void forget_model(int64_t id);

struct Model : torch::CustomClassHolder {
    // Each list has one element for each table; the features' lists one for each feature. padding: -1 is none.
    Model(std::vector<int64_t> rows, std::vector<int64_t> dims, std::vector<int64_t> roundings,
          std::vector<std::string> rules, std::vector<int64_t> feature_tables,
          std::vector<int64_t> poolings, std::vector<int64_t> padding, std::string kernel,
          int64_t threads, int64_t output_type, int64_t seed)
        : kernel(std::move(kernel)), threads(threads), output_type((int32_t)output_type),
          seed(seed) {
        for (size_t t = 0; t < rows.size(); t++)
            tables.push_back({rows[t], dims[t], (int32_t)roundings[t], rules[t]});
        for (size_t f = 0; f < feature_tables.size(); f++) {
            embfuse_feature x = {};
            x.table = (int32_t)feature_tables[f];
            x.pooling = (int32_t)poolings[f];
            x.has_padding = padding[f] >= 0;
            x.padding_id = padding[f] >= 0 ? padding[f] : 0;
            features.push_back(x);
            has_max |= x.pooling == EMBFUSE_MAX;
            width += dims[feature_tables[f]];
        }
        create(std::vector<at::ScalarType>(rows.size(), at::kFloat), at::kCPU);
        for (size_t t = 0; t < rows.size(); t++)
            state_counts.push_back((size_t)embfuse_array_count(model, (int32_t)t) - 1);
    }
    void release_resources() override {
        embfuse_model_free(model);
        model = nullptr;
        forget_model(id);
    }

    // --- hyper-parameters and shapes, for Python

    void set(int64_t table, const std::string &name, double value) {
        const std::lock_guard<std::mutex> guard(lock);
        must(embfuse_set(model, (int32_t)table, name.c_str(), value, &why), why);
    }
    double get(int64_t table, const std::string &name) {
        const std::lock_guard<std::mutex> guard(lock);
        double value = 0;
        must(embfuse_get(model, (int32_t)table, name.c_str(), &value, &why), why);
        return value;
    }
    std::vector<std::string> hyper_names(int64_t table) const {
        std::vector<std::string> names;
        while (const char *name = embfuse_hyper_name(model, (int32_t)table, (int32_t)names.size()))
            names.push_back(name);
        return names;
    }
    // Of each state: its name in a state_dict, and its columns.
    std::vector<std::tuple<std::string, int64_t>> states(int64_t table) {
        const std::lock_guard<std::mutex> guard(lock);
        std::vector<std::tuple<std::string, int64_t>> found;
        embfuse_array a;
        for (int32_t i = 1; i < embfuse_array_count(model, (int32_t)table); i++) {
            must(embfuse_array_info(model, (int32_t)table, i, &a, &why), why);
            found.emplace_back(a.name, a.width);
        }
        return found;
    }
    double initial(int64_t table, int64_t array, int64_t column) {
        const std::lock_guard<std::mutex> guard(lock);
        double value = 0;
        must(embfuse_initial(model, (int32_t)table, (int32_t)array, (int32_t)column, &value, &why),
             why);
        return value;
    }
    int64_t number() const {
        return id;
    }

    // --- steps that wait

    void defer(bool on) {
        deferred = on;
    }
    void drop() {
        waiting.clear();
    }
    std::vector<Tensor> gradients() const {
        std::vector<Tensor> found;
        for (const Lookup &x : waiting) found.push_back(x.grad);
        return found;
    }
    // Of lookup i that waits: ids, offsets, per-sample weights or nothing, winners or nothing.
    std::tuple<Tensor, Tensor, std::optional<Tensor>, Tensor> lookup(int64_t i) const {
        const Lookup &x = waiting.at((size_t)i);
        return {x.ids, x.offsets,
                x.weights.defined() ? std::optional<Tensor>(x.weights) : std::nullopt, x.winners};
    }
    void flush() {
        std::vector<Lookup> all;
        std::swap(all, waiting);
        take_steps(std::move(all));
    }
    void take_steps(std::vector<Lookup> all) {
        const auto same = [](const Lookup &x, const Lookup &y) {
            return std::equal(
                x.arrays.begin(), x.arrays.end(), y.arrays.begin(),
                [](const Tensor &a, const Tensor &b) { return a.data_ptr() == b.data_ptr(); });
        };
        while (!all.empty()) { // one step for each set of arrays
            std::vector<Lookup> one, others;
            for (Lookup &x : all) (same(x, all[0]) ? one : others).push_back(x);
            const auto &t = one[0].trains;
            const bool whole = one.size() == 1 && std::find(t.begin(), t.end(), false) == t.end();
            step(whole ? one[0] : joined(one));
            all = std::move(others);
        }
    }

    // A lookup of the backward pass that is under way. The callback at its end owns the lookups of the pass: one that raises
    // drops them. What waits for an Optimizer keeps tensors of its own, because programs use theirs again.
    void arrive(Lookup x) {
        std::unique_lock<std::mutex> guard(lock);
        const int pass = torch::autograd::get_current_graph_task_id();
        if (!torch::autograd::get_current_node() ||
            pass == -1) { // no pass, or one that calls nothing at its end
            std::vector<Lookup> alone = {std::move(x)};
            guard.unlock();
            return end_pass(alone);
        }
        auto lookups = passes[pass].lock();
        if (!lookups) {
            for (auto i = passes.begin(); i != passes.end();)
                i = i->second.expired() ? passes.erase(i) : std::next(i);
            lookups = std::make_shared<std::vector<Lookup>>();
            passes[pass] = lookups;
            const auto self = c10::intrusive_ptr<Model>::reclaim_copy(this);
            torch::autograd::Engine::get_default_engine().queue_callback(
                [self, lookups] { self->end_pass(*lookups); });
        }
        lookups->push_back(std::move(x));
    }
    void end_pass(std::vector<Lookup> &lookups) {
        if (!deferred) return take_steps(std::move(lookups));
        for (Lookup &x : lookups) {
            x.ids = x.ids.clone();
            x.offsets = x.offsets.clone();
            x.grad = x.grad.clone(at::MemoryFormat::Contiguous);
            if (x.weights.defined()) x.weights = x.weights.detach().clone();
        }
        const std::lock_guard<std::mutex> guard(lock);
        waiting.insert(waiting.end(), lookups.begin(), lookups.end());
    }

    // --- calls

    embfuse_batch batch_of(const Tensor &ids, const Tensor &offsets,
                           const std::optional<Tensor> &weights) const {
        embfuse_batch b = {};
        b.size = sizeof b;
        b.bags = (offsets.size(0) - 1) / (int64_t)features.size();
        b.lookups = ids.numel();
        b.ids = ids.const_data_ptr();
        b.offsets = offsets.const_data_ptr<int64_t>();
        b.id_type = ids.scalar_type() == at::kInt ? EMBFUSE_INT32 : EMBFUSE_INT64;
        b.lookup_weights =
            weights && weights->defined() ? weights->const_data_ptr<float>() : nullptr;
        if (ids.is_cuda())
            b.stream =
                c10::impl::VirtualGuardImpl(at::kCUDA).getStream(ids.device()).native_handle();
        return b;
    }

    std::tuple<Tensor, Tensor> forward(at::TensorList weights, const Tensor &ids,
                                       const Tensor &offsets,
                                       const std::optional<Tensor> &sample_weights) {
        const std::lock_guard<std::mutex> guard(lock);
        bind(weights, 1);
        embfuse_batch b = batch_of(ids, offsets, sample_weights);
        Tensor output = at::empty({b.bags, width}, ids.options().dtype(tensor_type(output_type)));
        Tensor winners = at::empty({has_max ? b.bags : 0, width}, ids.options().dtype(at::kInt));
        b.winners = has_max ? winners.mutable_data_ptr<int32_t>() : nullptr;
        must(embfuse_forward(model, &b, output.mutable_data_ptr(), &why), why);
        return {output, winners};
    }

    void step(const Lookup &x) {
        const std::lock_guard<std::mutex> guard(lock);
        bind(x.arrays, 0);
        embfuse_batch b = batch_of(x.ids, x.offsets, x.weights);
        const Tensor nobody = b.bags ? Tensor() : at::full({width}, -1, x.winners.options());
        b.winners = has_max ? (b.bags ? x.winners : nobody).mutable_data_ptr<int32_t>() : nullptr;
        int64_t *steps = x.steps.mutable_data_ptr<int64_t>();
        for (size_t t = 0; t < tables.size(); t++)
            must(embfuse_set_steps(model, (int32_t)t, steps[t], &why), why);
        const Tensor grad = x.grad.contiguous();
        must(embfuse_step(model, &b, grad.const_data_ptr(), &why), why);
        for (size_t t = 0; t < tables.size(); t++) steps[t] += x.trains[t];
        // What autograd has saved for another backward pass is now out of date.
        for (const Tensor &array : x.arrays) array.unsafeGetTensorImpl()->bump_version();
    }

    Tensor weight_grad(at::TensorList weights, const Lookup &x) {
        const std::lock_guard<std::mutex> guard(lock);
        Tensor out = at::empty_like(x.weights);
        if (out.numel() == 0) return out;
        bind(weights, 1);
        embfuse_batch b = batch_of(x.ids, x.offsets, x.weights);
        b.weight_grad = out.mutable_data_ptr<float>();
        const Tensor grad = x.grad.contiguous();
        must(embfuse_weight_grad(model, &b, grad.const_data_ptr(), &why), why);
        return out;
    }

    int64_t id = 0;
    std::vector<size_t> state_counts; // of each table
    std::vector<Table> tables;
    std::vector<embfuse_feature> features;
    bool has_max = false, deferred = false;
    int64_t width = 0;
    int32_t output_type_number() const {
        return output_type;
    }
    std::vector<Lookup> waiting; // until Optimizer.step()

  private:
    // Makes the model of libembfuse, with the hyper-parameters that the last one had.
    void create(const std::vector<at::ScalarType> &weight_types, at::DeviceType where) {
        std::vector<embfuse_table> described;
        for (size_t t = 0; t < tables.size(); t++) {
            embfuse_table x = {};
            x.rows = tables[t].rows;
            x.dim = (int32_t)tables[t].dim;
            x.weight_type = type_of(weight_types[t], "weights");
            x.rounding = tables[t].rounding;
            x.rule = tables[t].rule.c_str();
            described.push_back(x);
        }
        embfuse_options o = {};
        o.size = sizeof o;
        o.kernel = kernel.c_str();
        o.place = where == at::kCPU ? EMBFUSE_HOST : EMBFUSE_DEVICE;
        o.threads = (int32_t)(threads ? threads : at::get_num_threads());
        o.grad_type = output_type;
        o.rounding_seed = (uint64_t)seed;
        embfuse_model *made = nullptr;
        must(embfuse_model_create(&made, described.data(), (int32_t)described.size(),
                                  features.data(), (int32_t)features.size(), &o, &why),
             why);
        for (int32_t t = 0; model && t < (int32_t)tables.size(); t++)
            for (int32_t i = 0; const char *name = embfuse_hyper_name(model, t, i); i++) {
                double value = 0;
                must(embfuse_get(model, t, name, &value, &why), why);
                must(embfuse_set(made, t, name, value, &why), why);
            }
        embfuse_model_free(model);
        model = made;
        made_types = weight_types;
        made_where = where;
        made_threads = o.threads;
        bound.clear();
    }

    void bind_one(int32_t table, int32_t i, const Tensor &x) {
        embfuse_array a;
        must(embfuse_array_info(model, table, i, &a, &why), why);
        const int64_t rows = tables[table].rows;
        TORCH_CHECK_TYPE(x.scalar_type() == tensor_type(a.type), "table ", table, ": ", a.name,
                         " is ", x.scalar_type(), ", not ", tensor_type(a.type));
        TORCH_CHECK_VALUE(x.dim() == 2 && x.size(0) == rows && x.size(1) == a.width, "table ",
                          table, ": ", a.name, " has the shape ", x.sizes(), ", not ", rows,
                          " rows of ", a.width);
        TORCH_CHECK_VALUE(x.stride(1) == 1 || a.width == 1, "table ", table,
                          ": elements of a row of ", a.name,
                          " do not lie side by side: make it contiguous()");
        TORCH_CHECK_VALUE(rows == 1 || x.stride(0) >= a.width, "table ", table, ": rows of ",
                          a.name, " overlap: clone() it");
        must(embfuse_bind(model, table, i, x.mutable_data_ptr(),
                          rows > 1 ? x.stride(0) * x.element_size() : 0, &why),
             why);
    }

    // arrays: of all tables, or if each == 1 only their weights. Tensors that lie where they lay are not bound again.
    void bind(at::TensorList arrays, size_t each) {
        const at::Device where = arrays[0].device();
        TORCH_CHECK_TYPE(where.is_cpu() || where.is_cuda(), "tables are on ", where,
                         ", not on the host or a CUDA device");
        std::vector<size_t> counts(tables.size(), 1);
        for (size_t t = 0; !each && t < tables.size(); t++) counts[t] = 1 + state_counts[t];
        bool same =
            where.type() == made_where && (threads || at::get_num_threads() == made_threads);
        std::vector<at::ScalarType> weight_types;
        size_t at = 0;
        for (size_t t = 0; t < tables.size(); at += counts[t++]) {
            TORCH_CHECK_VALUE(at < arrays.size(), "too few tensors");
            weight_types.push_back(arrays[at].scalar_type());
            same &= weight_types[t] == made_types[t];
        }
        if (!same) create(weight_types, where.type());
        at = 0;
        for (size_t t = 0; t < tables.size(); t++)
            for (size_t i = 0; i < counts[t]; i++, at++) {
                const Tensor &x = arrays[at];
                TORCH_CHECK_TYPE(x.device() == where, "a tensor is on ", x.device(),
                                 ", another one on ", where);
                const auto key = std::make_pair(t, i);
                const auto now = std::make_tuple(x.const_data_ptr(), x.scalar_type(),
                                                 x.sizes().vec(), x.strides().vec());
                const auto found = bound.find(key);
                if (found != bound.end() && found->second == now) continue;
                bound.erase(key);
                bind_one((int32_t)t, (int32_t)i, x);
                bound[key] = now;
            }
    }

    bool feature_trains(const Lookup &x, int64_t f) const {
        return x.trains[(size_t)features[(size_t)f].table];
    }

    // Lookups that waited, as one batch: of every feature the bags of the first, then those of the second ... Bags of a
    // frozen table are empty: the step touches no row of it.
    Lookup joined(const std::vector<Lookup> &some) const {
        const int64_t count = (int64_t)features.size();
        std::vector<Tensor> lengths, grads, winners, ids, weights;
        bool weighted = false;
        for (const Lookup &x : some) {
            lengths.push_back(x.offsets.diff().view({count, -1}));
            for (int64_t f = 0; f < count; f++)
                if (!feature_trains(x, f)) lengths.back().select(0, f).zero_();
            grads.push_back(x.grad);
            winners.push_back(x.winners);
            weighted |= x.weights.defined();
        }
        std::vector<Tensor> ends; // of the features, on the host
        for (const Lookup &x : some) {
            const int64_t bags = (x.offsets.size(0) - 1) / count;
            ends.push_back(x.offsets
                               .index({at::arange(0, count * bags + 1, std::max<int64_t>(bags, 1),
                                                  x.offsets.options())})
                               .cpu());
        }
        for (int64_t f = 0; f < count; f++)
            for (size_t i = 0; i < some.size(); i++) {
                if (ends[i].size(0) <= f + 1 || !feature_trains(some[i], f)) continue;
                const int64_t *end = ends[i].const_data_ptr<int64_t>() + f;
                ids.push_back(some[i].ids.narrow(0, end[0], end[1] - end[0]).to(at::kLong));
                if (!weighted) continue;
                const Tensor all =
                    some[i].weights.defined()
                        ? some[i].weights
                        : at::ones(some[i].ids.sizes(), some[i].ids.options().dtype(at::kFloat));
                weights.push_back(all.narrow(0, end[0], end[1] - end[0]));
            }
        Lookup out = some[0];
        for (const Lookup &x : some)
            for (size_t t = 0; t < tables.size(); t++) out.trains[t] = out.trains[t] || x.trains[t];
        out.offsets = at::cat(
            {at::zeros({1}, out.offsets.options()), at::cat(lengths, 1).flatten().cumsum(0)});
        out.ids = ids.empty() ? some[0].ids.narrow(0, 0, 0) : at::cat(ids);
        if (weighted)
            out.weights = weights.empty() ? at::empty({0}, grads[0].options().dtype(at::kFloat))
                                          : at::cat(weights);
        out.grad = at::cat(grads);
        out.winners = at::cat(winners);
        return out;
    }

    std::map<int, std::weak_ptr<std::vector<Lookup>>> passes; // by the number of the engine
    using Place =
        std::tuple<const void *, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;
    embfuse_model *model = nullptr;
    embfuse_error why = {};
    std::mutex lock;
    std::string kernel;
    int64_t threads;
    int32_t output_type;
    int64_t seed;
    std::vector<at::ScalarType> made_types;
    at::DeviceType made_where = at::kCPU;
    int made_threads = 0;
    std::map<std::pair<size_t, size_t>, Place> bound;
};

} // namespace
