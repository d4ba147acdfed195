// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strconv"
	"strings"
)

// acting are the feature gates of Koordinator's manager that mean something here.
var acting = map[string]string{
	"WebhookFramework":                        "false takes the role webhook out",
	"ColocationProfileSkipMutatingResources":  "true leaves every pod's requests as they are",
	"ColocationProfileSkipValidatingPriority": "true lets the label koordinator.sh/priority of a pod change",
	"DisableExtendedResourceSpec":             "true writes no extended-resource-spec",
	"DisableDeviceResourceSpec":               "true leaves device requests as they are",
	"ValidatePodDeviceResource":               "true refuses device requests that mean nothing",
}

// resting are the others, and why they do nothing.
var resting = map[string]string{
	"PodMutatingWebhook": switched, "PodValidatingWebhook": switched, "ConfigMapValidatingWebhook": switched,
	"ElasticQuotaMutatingWebhook": unbuilt, "ElasticQuotaValidatingWebhook": unbuilt, "NodeMutatingWebhook": unbuilt,
	"NodeValidatingWebhook": unbuilt, "ReservationMutatingWebhook": unbuilt, "BindingAdmissionWebhook": unbuilt,
	"ColocationProfileController": unbuilt, "MultiQuotaTree": unbuilt, "ElasticQuotaIgnorePodOverhead": unbuilt,
	"ElasticQuotaGuaranteeUsage": unbuilt, "ElasticQuotaEnableUpdateResourceKey": unbuilt, "ElasticQuotaEvaluationTransformPod": unbuilt,
	"DisableDefaultQuota": unbuilt, "SupportParentQuotaSubmitPod": unbuilt, "EnableQuotaAdmission": unbuilt,
	"EnableQuotaAdmissionOnUpdate": unbuilt, "EnableSyncGPUSharedResource": unbuilt, "EnablePodEnhancedValidator": unbuilt,
	"AllAlpha": "no effect: every gate has its own line here", "AllBeta": "no effect: every gate has its own line here",
}

const (
	switched = "no effect: take the webhook out of the webhook configuration"
	unbuilt  = "no effect: not implemented"
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
