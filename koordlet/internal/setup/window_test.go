// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestWindowKnowsTheInterval: what is measured as often as collect.interval says covers its window.
func TestWindowKnowsTheInterval(t *testing.T) {
	t.Parallel()
	cfg := off()
	cfg.Collect.Interval = config.Duration(5 * time.Second)
	w := newWindow(&cfg)
	at := unit.Minute
	for ; at <= 2*unit.Minute; at += 5 * unit.Second {
		w.Append([]sample.Sample{{Subject: sample.OfNode(), Metric: sample.CPUUsage, Value: 1, At: at}})
	}
	if got := w.Query(sample.OfNode(), sample.CPUUsage, unit.Minute, 2*unit.Minute); got.Count != 12 || got.Covered != 1 {
		t.Errorf("%+v", got)
	}
}
