// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package rootquota

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/selector"
)

// maxRatio bounds what is computed exactly: a part with a million digits takes minutes each time that a node changes.
const maxRatio = 32

// own are the quotas that the scheduler makes itself.
var own = []string{protocol.QuotaRoot, protocol.QuotaSystem, protocol.QuotaDefault}

// Check says why no quota can be made from a profile: its name, labels, nodes, or the part of them.
func Check(s *quotav1alpha1.ElasticQuotaProfileSpec) []string {
	var out []string
	if why := validation.IsDNS1123Subdomain(s.QuotaName); len(why) > 0 {
		out = append(out, fmt.Sprintf("spec.quotaName: %q is no name of an object: %s", s.QuotaName, why[0]))
	} else if slices.Contains(own, s.QuotaName) {
		out = append(out, "spec.quotaName: "+s.QuotaName+" is the scheduler's own: choose another name")
	}
	for _, key := range slices.Sorted(maps.Keys(s.QuotaLabels)) {
		if why := validation.IsQualifiedName(key); len(why) > 0 {
			out = append(out, fmt.Sprintf("spec.quotaLabels: %q is no key of a label: %s", key, why[0]))
		}
		if why := validation.IsValidLabelValue(s.QuotaLabels[key]); len(why) > 0 {
			out = append(out, fmt.Sprintf("spec.quotaLabels: %q is no value of the label %s: %s", s.QuotaLabels[key], key, why[0]))
		}
	}
	if s.ResourceRatio != nil && *s.ResourceRatio != "" {
		if len(*s.ResourceRatio) > maxRatio {
			out = append(out, fmt.Sprintf("spec.resourceRatio: %d characters, want at most %d", len(*s.ResourceRatio), maxRatio))
		} else if r, err := strconv.ParseFloat(*s.ResourceRatio, 64); err != nil || !(r > 0 && r <= 1) {
			out = append(out, fmt.Sprintf("spec.resourceRatio: %q, want a number above 0 and up to 1", *s.ResourceRatio))
		}
	}
	if s.NodeSelector == nil {
		out = append(out, "spec.nodeSelector: missing: say which nodes the quota is made of; {} is all")
	} else if err := selector.Check(s.NodeSelector); err != nil {
		out = append(out, fmt.Sprintf("spec.nodeSelector: %v", err))
	}
	return out
}
