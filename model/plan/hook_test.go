// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
)

// A hook server is an owner of its own: the same value from it and from us is two owners.
func TestHookOwns(t *testing.T) {
	t.Parallel()
	s := plan.Setting{Knob: plan.CPUShares, Value: plan.Int(2), Owner: protocol.FeatureBatch}
	h := s
	h.Hook = "koordlet"
	if s.By() != "batch" || h.By() != "hook:koordlet" || !strings.Contains(h.String(), "= 2 (hook:koordlet: ") {
		t.Errorf("%s, %s, %s", s.By(), h.By(), h.String())
	}
	if _, err := plan.Merge(plan.Plan{s}, plan.Plan{h}); !errors.Is(err, plan.ErrConflict) || !strings.Contains(err.Error(), "hook:koordlet wants 2") {
		t.Errorf("error = %v", err)
	}
	h.Knob, h.Key, h.Value = plan.Env, "TOKEN", plan.Text("secret")
	if strings.Contains(h.String(), "secret") {
		t.Error(h.String())
	}
}
