// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestHealthDefaults: a cluster that says nothing, and one whose reports are rare.
func TestHealthDefaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text  string
		stale time.Duration
	}{
		"nothing":      {`{"enable": true}`, 5 * time.Minute},
		"soon too old": {`{"degradeTimeMinutes": 1}`, 3 * time.Minute},
		"rare reports": {`{"metricReportIntervalSeconds": 600}`, 30 * time.Minute},
	} {
		c, _ := parsed(t, map[string]string{KeyColocation: tc.text}).Colocation(Node{})
		got, problems := c.Health()
		want := Health{
			Enable: true, Stale: tc.stale, Contradicts: 10 * time.Minute, Recovery: 5 * time.Minute, MarginPercent: 20,
			ContradictionPercent: 50, MemoryPressurePercent: 0, DiskPressurePercent: 50, PIDPressurePercent: 50, EvictionsPerHour: 3,
		}
		if !reflect.DeepEqual(got, want) || len(problems) > 0 {
			t.Errorf("%s: have %+v (%v)\nwant %+v", name, got, problems, want)
		}
	}
}

// TestHealthLayers: the last layer that has the extension replaces it as a whole; others' extensions stay beside it.
func TestHealthLayers(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{KeyColocation: `
enable: true
extensions:
  example.com/other: {a: 1}
  koord-rt.dev/lending-health: {diskPressurePercent: 25, evictionsPerHour: 0}
nodeConfigs:
- nodeSelector: {matchLabels: {pool: db}}
  extensions:
    koord-rt.dev/lending-health: {enable: false}
`})
	whole, _ := c.Colocation(node(nil, nil))
	if h, _ := whole.Health(); !h.Enable || h.DiskPressurePercent != 25 || h.EvictionsPerHour != 0 || len(whole.Extensions) != 2 {
		t.Errorf("cluster: %+v of %v", h, whole.Extensions)
	}
	pool, _ := c.Colocation(node(map[string]string{"pool": "db"}, nil))
	if h, _ := pool.Health(); h.Enable || h.DiskPressurePercent != 50 || len(pool.Extensions) != 2 {
		t.Errorf("pool: %+v of %v", h, pool.Extensions)
	}
	own, problems := c.Colocation(node(nil, map[string]string{
		"node.koordinator.sh/colocation-strategy": `{"extensions": {"koord-rt.dev/lending-health": {"recoverySeconds": 60}}}`,
	}))
	if h, _ := own.Health(); h.Recovery != time.Minute || h.DiskPressurePercent != 50 || len(problems) > 0 {
		t.Errorf("annotation: %+v, %v", h, problems)
	}
}

// TestHealthProblems: what is wrong with it is refused as everything else, with its field.
func TestHealthProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"extensions": {"koord-rt.dev/lending-health": {"diskPressurePercent": 101}}}`:                                                           "extensions.koord-rt.dev/lending-health.diskPressurePercent: out of range: 101, want 0..100",
		`{"extensions": {"koord-rt.dev/lending-health": {"disk": 1}}}`:                                                                            "extensions.koord-rt.dev/lending-health.disk: unknown key",
		`{"extensions": {"koord-rt.dev/lending-health": [1]}}`:                                                                                    "extensions.koord-rt.dev/lending-health: ",
		`{"extensions": {"koord-rt.dev/lending-health": {"memoryPressureWatermarkScaleFactor": 401}}}`:                                            "want 1..400",
		`{"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "extensions": {"koord-rt.dev/lending-health": {"recoverySeconds": 0}}}]}`: "nodeConfigs[0].extensions.koord-rt.dev/lending-health.recoverySeconds: ",
	} {
		_, problems := Parse(map[string]string{KeyColocation: text}, nil)
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), want) || problems[0].Line != 1 {
			t.Errorf("%s:\n%v\nwant %s", text, problems, want)
		}
	}
}

// TestWatermark: a node that is short of memory, or was of late, reclaims earlier, if the cluster wants that, and never later than it says.
func TestWatermark(t *testing.T) {
	t.Parallel()
	const (
		short = `{"percent":25,"reasons":["memory-pressure"],"since":"2026-11-22T12:00:00Z"}`
		other = `{"percent":50,"reasons":["disk-pressure"],"since":"2026-11-22T12:00:00Z"}`
		on    = `{"enable": true, "extensions": {"koord-rt.dev/lending-health": {"memoryPressureWatermarkScaleFactor": 150}}}`
	)
	for name, tc := range map[string]struct {
		colocation, system, weight string
		want                       int64 // 0 for none
	}{
		"sound":                        {on, "", "", 0},
		"short of memory":              {on, "", short, 150},
		"short of something else":      {on, "", other, 0},
		"nobody can read it":           {on, "", "50", 0},
		"the cluster wants less":       {on, `{"clusterStrategy": {"watermarkScaleFactor": 20}}`, short, 150},
		"the cluster wants more":       {on, `{"clusterStrategy": {"watermarkScaleFactor": 200}}`, short, 200},
		"the cluster's on a sound one": {on, `{"clusterStrategy": {"watermarkScaleFactor": 20}}`, "", 20},
		"not wanted":                   {`{"enable": true}`, "", short, 0},
		"colocation is off":            {strings.Replace(on, "true", "false", 1), "", short, 0},
	} {
		data := map[string]string{KeyColocation: tc.colocation}
		if tc.system != "" {
			data[KeySystem] = tc.system
		}
		annotations := map[string]string{}
		if tc.weight != "" {
			annotations["koord-rt.dev/lending-weight"] = tc.weight
		}
		spec, problems := parsed(t, data).NodeSLO(node(nil, annotations))
		var got int64
		if s := spec.SystemStrategy; s != nil && s.WatermarkScaleFactor != nil {
			got = *s.WatermarkScaleFactor
		}
		if got != tc.want || len(problems) > 0 {
			t.Errorf("%s: %d, want %d; %v", name, got, tc.want, problems)
		}
	}
}
