// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quota

import (
	"context"
	"encoding/json"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/rootquota"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// profiler checks ElasticQuotaProfiles.
type profiler struct{ answers *answer.Answers }

// Handle refuses profiles from which no quota can be made.
func (p *profiler) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	var now, was quotav1alpha1.ElasticQuotaProfile
	if err := json.Unmarshal(req.Object.Raw, &now); err != nil {
		return p.answers.Open(profiling, "decode", "the ElasticQuotaProfile cannot be decoded")
	}
	var before []string
	if req.Operation == admissionv1.Update {
		if err := json.Unmarshal(req.OldObject.Raw, &was); err != nil {
			return p.answers.Open(profiling, "decode", "the old ElasticQuotaProfile cannot be decoded")
		}
		before = rootquota.Check(&was.Spec)
	}
	problems := slices.DeleteFunc(rootquota.Check(&now.Spec), func(s string) bool { return slices.Contains(before, s) })
	if len(problems) > 0 {
		return p.answers.Refuse(profiling, problems)
	}
	return admission.Allowed("")
}
