// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
)

// TestFollows: an object is in force as soon as the engine has read what was handed on, and no sooner.
func TestFollows(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":    `{}`,
		"thresholds": `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressPolicy":"cfsQuota","cpuSuppressThresholdPercent":30}}`,
		"documents":  `{"resourceThresholdStrategy":{"enable":true,"thresholds":{"cpu-suppress-percent":65}}}`,
		"extensions": `{"extensions":{"x":{ "b": 1.50, "a": "<&>" }},"hostApplications":[{"name":"web","qos":"LS","cgroupPath":{"base":"CgroupRoot","relativePath":"web"}}]}`,
		"empty list": `{"hostApplications":[],"extensions":{}}`,
		"blocks":     `{"resourceQOSStrategy":{"beClass":{"blkioQOS":{"enable":true,"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"readIOPS":100}}]}}}}`,
	} {
		o, err := slo.DecodeNodeSLO([]byte(`{"metadata":{"name":"node-001"},"spec":` + text + `}`))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		dir, state := t.TempDir(), t.TempDir()
		w, err := handoff.NewWriter(dir, state)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Strategy(1, &o.Spec, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		read := handoff.Read(handoff.Options{RunDir: dir, StateDir: state}).Strategy
		if read == nil {
			t.Fatalf("%s: the strategy was not handed on", name)
		}
		inForce := strategy.Effective(*read)
		if !follows(&inForce, &o.Spec) {
			t.Errorf("%s: what was handed on counts as not in force", name)
		}
		percent := int64(31)
		o.Spec.ResourceUsedThresholdWithBE = &strategy.ResourceThresholdStrategy{CPUSuppressThresholdPercent: &percent}
		if follows(&inForce, &o.Spec) {
			t.Errorf("%s: a change that was not handed on counts as in force", name)
		}
	}
}
