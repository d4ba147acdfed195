// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strconv"
	"strings"
)

// gateSharedGPU is read by the controller of node resources, not by a webhook.
const gateSharedGPU = "EnableSyncGPUSharedResource"

// gateReapply adds the controller colocationprofile.
const gateReapply = "ColocationProfileController"

// acting are the feature gates of Koordinator's manager that mean something here.
var acting = map[string]string{
	"WebhookFramework":                        "false takes the role webhook out",
	"ColocationProfileSkipMutatingResources":  "true leaves every pod's requests as they are",
	"ColocationProfileSkipValidatingPriority": "true lets the label koordinator.sh/priority of a pod change",
	"ElasticQuotaEnableUpdateResourceKey":     "true lets a quota limit fewer resources than its parent",
	"DisableExtendedResourceSpec":             "true writes no extended-resource-spec",
	"DisableDeviceResourceSpec":               "true leaves device requests as they are",
	gateSharedGPU:                             "true offers koordinator.sh/gpu.shared on nodes",
	gateReapply:                               "true applies changed profiles again to pods that wait for a node",
	"ValidatePodDeviceResource":               "true refuses device requests that mean nothing",
	"DisableDefaultQuota":                     "true has pods of no quota belong to none",
	"SupportParentQuotaSubmitPod":             "true lets a quota with children have pods of its own",
	"ElasticQuotaIgnorePodOverhead":           "true leaves a pod's overhead out of what its quota's cap is compared with",
	"MultiQuotaTree":                          "true holds pods to the nodes of their quota's tree",
	"ReservationMutatingWebhook":              "true applies profiles to new Reservations",
}

// resting are the others, and why they do nothing.
var resting = map[string]string{
	"PodMutatingWebhook": switched, "PodValidatingWebhook": switched, "ConfigMapValidatingWebhook": switched,
	// Koordinator reads the first two; the others are what its documents call them.
	"ElasticMutatingWebhook": switched, "ElasticValidatingWebhook": switched,
	"ElasticQuotaMutatingWebhook": switched, "ElasticQuotaValidatingWebhook": switched, "ElasticQuotaGuaranteeUsage": quotas,
	"ElasticQuotaEvaluationTransformPod": quotas, "EnableQuotaAdmission": quotas, "EnableQuotaAdmissionOnUpdate": quotas,
	"NodeMutatingWebhook": switched, "NodeValidatingWebhook": switched, "BindingAdmissionWebhook": bindings,
	"EnablePodEnhancedValidator": rules,
	// Of Koordinator's scheduler and descheduler; its manager takes them and does nothing with them either.
	"DisablePVCReservation": others, "PriorityTransformer": others, "PreemptionPolicyTransformer": others, "ReplaceResourcesTransformer": others,
	"AllAlpha": "no effect: every gate has its own line here", "AllBeta": "no effect: every gate has its own line here",
}

// Why a gate, a flag or a controller of Koordinator's manager does nothing here, and what to do instead.
const (
	switched  = "no effect: take the webhook out of the webhook configuration"
	quotas    = "no effect: quotas are held to the rules of their kind, a pod to its quota's cap, and what a quota's pods ask for together is not counted"
	bindings  = "no effect: bindings are not looked at; grant pods/binding to schedulers only"
	reapplied = "no effect: the feature gate " + gateReapply + " says whether changed profiles are applied again"
	rounds    = "no effect: each round looks at all pods that wait, and writes what differs"
	others    = "no effect: it is not a gate of the manager's"
	rules     = "no effect: rules of your own for pods belong into a ValidatingAdmissionPolicy"
)

// gates reads "Name=true,Other=false", and more of it, of which the later counts: names of gates that are not known, or stand twice in one, are
// errors.
func (p *parser) gates(texts []string) map[string]bool {
	out := map[string]bool{}
	for _, text := range texts {
		seen := map[string]bool{}
		for _, part := range split(text) {
			name, value, _ := strings.Cut(part, "=")
			on, err := strconv.ParseBool(value)
			why, rests := resting[name]
			switch {
			case err != nil:
				p.fail("feature-gates: %.60q: want Name=true or Name=false", part)
			case seen[name]:
				p.fail("feature-gates: %.60q is given twice", name)
			case rests:
				p.more = append(p.more, "feature gate "+name+"="+value+" has "+why)
			case acting[name] == "":
				p.fail("feature-gates: %.60q is not known", name)
			default:
				out[name] = on
			}
			seen[name] = true
		}
	}
	return out
}
