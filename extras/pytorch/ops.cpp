// SPDX-License-Identifier: MIT
//
// The operators of the PyTorch module: a thin layer between torch::Library and extras/library/embfuse.h.
//
//   embfuse::lookup   what modules call: forward, and a node of autograd whose backward() takes or keeps the step
//   embfuse::forward  looks up and pools; pure
//   embfuse::step     the backward pass fused with the optimizer; it changes the arrays of the tables
//   embfuse::weight_grad  the gradient of per-sample weights; pure
//
// When a step is taken. backward() keeps the gradient of the output and asks the engine to call back at the end of the
// pass. So lookups of one pass are one step, and no table moves if another node raises. With an Optimizer (Model.defer) the
// gradients wait for its step(). What torch.compile makes of backward() calls embfuse::step, which does the same.
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <sstream>

#include "model.h"

namespace {

// --- models by number: what operators take, so that a graph has a constant

std::mutex models_lock;
std::map<int64_t, c10::weak_intrusive_ptr<Model>> models;

c10::intrusive_ptr<Model> model_of(int64_t id) {
    const std::lock_guard<std::mutex> guard(models_lock);
    const auto found = models.find(id);
    const auto model = found == models.end() ? c10::intrusive_ptr<Model>() : found->second.lock();
    TORCH_CHECK(model, "there is no model ", id, ": its module is gone");
    return model;
}

void forget_model(int64_t id) {
    const std::lock_guard<std::mutex> guard(models_lock);
    models.erase(id);
}

c10::intrusive_ptr<Model> new_model(std::vector<int64_t> rows, std::vector<int64_t> dims,
                                    std::vector<int64_t> roundings, std::vector<std::string> rules,
                                    std::vector<int64_t> feature_tables,
                                    std::vector<int64_t> poolings, std::vector<int64_t> padding,
                                    std::string kernel, int64_t threads, int64_t output_type,
                                    int64_t seed) {
    auto made = c10::make_intrusive<Model>(rows, dims, roundings, rules, feature_tables, poolings,
                                           padding, kernel, threads, output_type, seed);
    const std::lock_guard<std::mutex> guard(models_lock);
    static int64_t count = 0;
    /* With a hash of the description, because a graph that is kept on disk has what another number made of it. */
    std::ostringstream about;
    about << rows << dims << roundings << rules << feature_tables << poolings << padding << kernel
          << output_type;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char c : about.str()) hash = (hash ^ (uint8_t)c) * 1099511628211u;
    made->id = (int64_t)(hash >> 24 << 23) + count++ % (1 << 23);
    models.emplace(made->id, made);
    return made;
}

// --- operators

// [features * bags + 1] int64. Without offsets, ids are [bags][length]; without include_last_offset the last one is
// missing.
Tensor whole_offsets(const Tensor &ids, const std::optional<Tensor> &offsets,
                     bool include_last_offset) {
    if (!offsets)
        return at::arange(0, ids.size(0) + 1, ids.options().dtype(at::kLong)).mul_(ids.size(1));
    TORCH_CHECK_TYPE(offsets->device() == ids.device(), "offsets are on ", offsets->device(),
                     ", ids on ", ids.device());
    if (include_last_offset) return offsets->to(at::kLong).contiguous();
    const int64_t bags = offsets->size(0);
    Tensor whole = at::empty({bags + 1}, ids.options().dtype(at::kLong));
    whole.narrow(0, 0, bags).copy_(*offsets);
    whole.narrow(0, bags, 1).fill_(ids.numel());
    return whole;
}

std::optional<Tensor> flat(const std::optional<Tensor> &x) {
    return x && x->defined() ? std::optional<Tensor>(x->flatten().contiguous()) : std::nullopt;
}

std::tuple<Tensor, Tensor, Tensor>
forward(at::TensorList weights, const Tensor &ids, const std::optional<Tensor> &offsets,
        bool include_last_offset, const std::optional<Tensor> &sample_weights, int64_t model) {
    const Tensor whole = whole_offsets(ids, offsets, include_last_offset);
    auto [output, winners] =
        model_of(model)->forward(weights, ids.flatten().contiguous(), whole, flat(sample_weights));
    return {output, winners, whole};
}

std::tuple<Tensor, Tensor, Tensor> forward_shapes(at::TensorList, const Tensor &ids,
                                                  const std::optional<Tensor> &offsets,
                                                  bool include_last_offset,
                                                  const std::optional<Tensor> &, int64_t model) {
    const auto m = model_of(model);
    const c10::SymInt all =
        offsets ? offsets->sym_size(0) - (include_last_offset ? 1 : 0) : ids.sym_size(0);
    const c10::SymInt bags = m->features.size() == 1 ? all : all / (int64_t)m->features.size();
    const c10::SymInt width = m->width, none = 0;
    return {
        at::empty_symint({bags, width}, ids.options().dtype(tensor_type(m->output_type_number()))),
        at::empty_symint({m->has_max ? bags : none, width}, ids.options().dtype(at::kInt)),
        at::empty_symint({all + 1}, ids.options().dtype(at::kLong))};
}

Lookup lookup_of(const Tensor &ids, const Tensor &offsets,
                 const std::optional<Tensor> &sample_weights, const Tensor &winners,
                 const Tensor &grad) {
    Lookup x;
    x.ids = ids.flatten().contiguous();
    x.offsets = offsets;
    if (auto weights = flat(sample_weights)) x.weights = *weights;
    x.winners = winners;
    x.grad = grad;
    return x;
}

void step(at::TensorList arrays, const Tensor &steps, const Tensor &ids, const Tensor &offsets,
          const std::optional<Tensor> &sample_weights, const Tensor &winners, const Tensor &grad,
          at::IntArrayRef trains, int64_t model) {
    const auto m = model_of(model);
    Lookup x = lookup_of(ids, offsets, sample_weights, winners, grad);
    x.arrays = arrays.vec();
    x.trains.assign(trains.begin(), trains.end());
    x.steps = steps;
    if (!m->deferred)
        x.grad = grad.clone(at::MemoryFormat::Contiguous); // whose memory a graph uses again
    m->arrive(std::move(x));
}

void step_shapes(at::TensorList, const Tensor &, const Tensor &, const Tensor &,
                 const std::optional<Tensor> &, const Tensor &, const Tensor &, at::IntArrayRef,
                 int64_t) {}

Tensor weight_grad(at::TensorList weights, const Tensor &ids, const Tensor &offsets,
                   const Tensor &sample_weights, const Tensor &grad, int64_t model) {
    const Lookup x = lookup_of(ids, offsets, sample_weights, Tensor(), grad);
    return model_of(model)->weight_grad(weights, x).view(sample_weights.sizes());
}

Tensor weight_grad_shapes(at::TensorList, const Tensor &, const Tensor &,
                          const Tensor &sample_weights, const Tensor &, int64_t) {
    return at::empty_like(sample_weights);
}

// Through the dispatcher, so that torch.compile sees these calls in a node of autograd.
template <typename Function> auto op(const char *name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Function>();
}

int64_t version(const Tensor &x) {
    return x.is_inference() ? 0 : (int64_t)x._version();
}

struct LookupNode : torch::autograd::Function<LookupNode> {
    static Tensor forward(torch::autograd::AutogradContext *ctx, at::TensorList weights,
                          at::TensorList states, const Tensor &steps, const Tensor &ids,
                          const std::optional<Tensor> &offsets, bool include_last_offset,
                          const std::optional<Tensor> &sample_weights, int64_t model) {
        const at::AutoDispatchBelowADInplaceOrView guard;
        static const auto call = op<decltype(::forward)>("embfuse::forward");
        auto [output, winners, whole] =
            call.call(weights, ids, offsets, include_last_offset, sample_weights, model);
        ctx->save_for_backward({ids, whole, winners, sample_weights.value_or(Tensor())});
        /* Apart from what hooks of saved tensors may copy: the step writes to these tensors. */
        std::vector<Tensor> arrays;
        std::vector<int64_t> trains, versions;
        const auto m = model_of(model);
        for (size_t t = 0, s = 0; t < weights.size(); t++) {
            trains.push_back(weights[t].requires_grad());
            arrays.push_back(weights[t]);
            for (size_t i = m->state_counts[t]; i > 0; i--) arrays.push_back(states[s++]);
        }
        if (!c10::impl::TorchDispatchModeTLS::any_modes_set())
            for (const Tensor &array : arrays) versions.push_back(version(array));
        ctx->saved_data["arrays"] = arrays;
        ctx->saved_data["versions"] = versions;
        ctx->saved_data["trains"] = trains;
        ctx->saved_data["steps"] = steps;
        ctx->saved_data["model"] = model;
        return output;
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext *ctx,
                                                   const torch::autograd::variable_list &grads) {
        TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                    "embfuse: the step has no gradient, so create_graph=True "
                                    "cannot be");
        const auto saved = ctx->get_saved_variables();
        const Tensor &ids = saved[0], &whole = saved[1], &winners = saved[2], &given = saved[3];
        const int64_t model = ctx->saved_data["model"].toInt();
        const Tensor steps = ctx->saved_data["steps"].toTensor();
        const std::vector<Tensor> arrays = ctx->saved_data["arrays"].toTensorVector();
        const std::vector<int64_t> trains = ctx->saved_data["trains"].toIntVector();
        const std::vector<int64_t> versions = ctx->saved_data["versions"].toIntVector();
        for (size_t i = 0; i < versions.size(); i++)
            TORCH_CHECK(version(arrays[i]) == versions[i],
                        "embfuse: rows have changed since this lookup, by a step or in place. Call "
                        "backward() for a "
                        "lookup before the next step, or let embfuse.Optimizer take the steps");
        /* One gradient for each tensor, and None for the rest: weights, states, steps, ids, offsets, bool, weights, int. */
        torch::autograd::variable_list out(arrays.size() + 6);
        const at::AutoDispatchBelowADInplaceOrView guard;
        const auto m = model_of(model);
        if (given.defined() && given.requires_grad()) {
            std::vector<Tensor> weights;
            for (size_t t = 0, at = 0; t < trains.size(); at += 1 + m->state_counts[t++])
                weights.push_back(arrays[at]);
            static const auto call = op<decltype(::weight_grad)>("embfuse::weight_grad");
            out[out.size() - 2] = call.call(weights, ids, whole, given, grads[0], model);
        }
        if (std::find(trains.begin(), trains.end(), 1) == trains.end()) return out;
        const std::optional<Tensor> sample_weights =
            given.defined() ? std::optional<Tensor>(given) : std::nullopt;
        if (c10::impl::TorchDispatchModeTLS::any_modes_set()) { /* torch.compile looks on */
            static const auto call = op<decltype(::step)>("embfuse::step");
            call.call(arrays, steps, ids, whole, sample_weights, winners, grads[0], trains, model);
            return out;
        }
        Lookup x = lookup_of(ids, whole, sample_weights, winners, grads[0]);
        x.arrays = arrays;
        x.steps = steps;
        x.trains.assign(trains.begin(), trains.end());
        m->arrive(std::move(x));
        return out;
    }
};

Tensor lookup(at::TensorList weights, at::TensorList states, const Tensor &steps, const Tensor &ids,
              const std::optional<Tensor> &offsets, bool include_last_offset,
              const std::optional<Tensor> &sample_weights, int64_t model) {
    return LookupNode::apply(weights, states, steps, ids, offsets, include_last_offset,
                             sample_weights, model);
}

} // namespace

TORCH_LIBRARY(embfuse, m) {
    m.class_<Model>("Model")
        .def("set", &Model::set)
        .def("get", &Model::get)
        .def("hyper_names", &Model::hyper_names)
        .def("states", &Model::states)
        .def("initial", &Model::initial)
        .def("number", &Model::number)
        .def("defer", &Model::defer)
        .def("drop", &Model::drop)
        .def("gradients", &Model::gradients)
        .def("lookup", &Model::lookup)
        .def("flush", &Model::flush);
    m.def("new_model(int[] rows, int[] dims, int[] roundings, str[] rules, int[] feature_tables, "
          "int[] poolings, "
          "int[] padding, str kernel, int threads, int output_type, int seed) -> "
          "__torch__.torch.classes.embfuse.Model",
          &new_model);
    m.def("lookup(Tensor[] weights, Tensor[] states, Tensor steps, Tensor ids, Tensor? offsets, "
          "bool include_last_offset, Tensor? sample_weights, int model) -> Tensor",
          torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, &lookup));
    m.def("forward(Tensor[] weights, Tensor ids, Tensor? offsets, bool include_last_offset, "
          "Tensor? sample_weights, int model) -> (Tensor, Tensor, Tensor)");
    m.def("step(Tensor(a!)[] arrays, Tensor(b!) steps, Tensor ids, Tensor offsets, Tensor? "
          "sample_weights, "
          "Tensor winners, Tensor grad, int[] trains, int model) -> ()");
    m.def("weight_grad(Tensor[] weights, Tensor ids, Tensor offsets, Tensor sample_weights, Tensor "
          "grad, int model) "
          "-> Tensor");
}

#define EVERYWHERE(key)                                                                            \
    TORCH_LIBRARY_IMPL(embfuse, key, m) {                                                          \
        m.impl("forward", &forward);                                                               \
        m.impl("step", &step);                                                                     \
        m.impl("weight_grad", &weight_grad);                                                       \
    }
EVERYWHERE(CPU)
EVERYWHERE(CUDA)

TORCH_LIBRARY_IMPL(embfuse, Meta, m) {
    m.impl("forward", &forward_shapes);
    m.impl("step", &step_shapes);
    m.impl("weight_grad", &weight_grad_shapes);
}
