// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strconv"
	"strings"
)

// gateSharedGPU is read by the controller of node resources, not by a webhook.
const gateSharedGPU = "EnableSyncGPUSharedResource"

// acting are the feature gates of Koordinator's manager that mean something here.
var acting = map[string]string{
	"WebhookFramework":                        "false takes the role webhook out",
	"ColocationProfileSkipMutatingResources":  "true leaves every pod's requests as they are",
	"ColocationProfileSkipValidatingPriority": "true lets the label koordinator.sh/priority of a pod change",
	"DisableExtendedResourceSpec":             "true writes no extended-resource-spec",
	"DisableDeviceResourceSpec":               "true leaves device requests as they are",
	gateSharedGPU:                             "true offers koordinator.sh/gpu.shared on nodes",
	"ValidatePodDeviceResource":               "true refuses device requests that mean nothing",
}

// resting are the others, and why they do nothing.
var resting = map[string]string{
	"PodMutatingWebhook": switched, "PodValidatingWebhook": switched, "ConfigMapValidatingWebhook": switched,
	"ElasticQuotaMutatingWebhook": quotas, "ElasticQuotaValidatingWebhook": quotas, "MultiQuotaTree": quotas,
	"ElasticQuotaIgnorePodOverhead": quotas, "ElasticQuotaGuaranteeUsage": quotas, "ElasticQuotaEnableUpdateResourceKey": quotas,
	"ElasticQuotaEvaluationTransformPod": quotas, "DisableDefaultQuota": quotas, "SupportParentQuotaSubmitPod": quotas,
	"EnableQuotaAdmission": quotas, "EnableQuotaAdmissionOnUpdate": quotas,
	"NodeMutatingWebhook": nodes, "NodeValidatingWebhook": nodes, "ReservationMutatingWebhook": reservations, "BindingAdmissionWebhook": bindings,
	"ColocationProfileController": reapplied, "EnablePodEnhancedValidator": rules,
	"AllAlpha": "no effect: every gate has its own line here", "AllBeta": "no effect: every gate has its own line here",
}

// Why a gate, a flag or a controller of Koordinator's manager does nothing here, and what to do instead.
const (
	switched     = "no effect: take the webhook out of the webhook configuration"
	quotas       = "no effect: quotas are held to the rules of their definition, and no pod is admitted or refused by one"
	nodes        = "no effect: nodes are not rewritten or refused at admission; what one says of itself is checked where it is used, and the log names what cannot be read"
	reservations = "no effect: reservations are stored as they are written, and held to the rules of their definition"
	bindings     = "no effect: bindings are not looked at; grant pods/binding to schedulers only"
	reapplied    = "no effect: profiles act when a pod is made; make the pods of a changed one anew (kubectl rollout restart)"
	rules        = "no effect: rules of your own for pods belong into a ValidatingAdmissionPolicy"
)

// gates reads "Name=true,Other=false": names of gates that are not known, or given twice, are errors.
func (p *parser) gates(text string) map[string]bool {
	out := map[string]bool{}
	for _, part := range split(text) {
		name, value, _ := strings.Cut(part, "=")
		on, err := strconv.ParseBool(value)
		_, twice := out[name]
		why, rests := resting[name]
		switch {
		case err != nil:
			p.fail("feature-gates: %.60q: want Name=true or Name=false", part)
		case twice:
			p.fail("feature-gates: %.60q is given twice", name)
		case rests:
			p.more = append(p.more, "feature gate "+name+"="+value+" has "+why)
		case acting[name] == "":
			p.fail("feature-gates: %.60q is not known", name)
		default:
			out[name] = on
		}
	}
	return out
}
