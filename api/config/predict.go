// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"maps"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Predict is the prediction of the prod band: NodeMetric's prodReclaimableMetric and prodPeakMetric.
type Predict struct {
	// Enable learns and tells. Without it nothing is told, and nobody is lent what prod pods leave. Default true.
	Enable bool `json:"enable"`
	// Interval between two trainings. Range from 10s, and 6 collect.interval, to 1h; default 1m.
	Interval Duration `json:"interval"`
	// ColdStart is how long a new pod counts with its whole request; a model is believed once it has half of the samples of
	// such a time. Range 0s..720h, default 24h.
	ColdStart Duration `json:"coldStart"`
	// SafetyMarginPercent is added to every peak. Range 0..1000, default 10.
	SafetyMarginPercent int64 `json:"safetyMarginPercent"`
	// CPUHalfLife is the time after which a sample of CPU weighs half. Range 1m..720h, default 12h.
	CPUHalfLife Duration `json:"cpuHalfLife"`
	// MemoryHalfLife is the same for memory. Range 1m..720h, default 24h.
	MemoryHalfLife Duration `json:"memoryHalfLife"`
	// CPUPercentile is which of the samples of CPU counts as the peak: 60, 90, 95, 98, or 100 for the largest that is not forgotten.
	// Default 95.
	CPUPercentile int64 `json:"cpuPercentile"`
	// MemoryPercentile is the same for memory. Default 98.
	MemoryPercentile int64 `json:"memoryPercentile"`
	// Classes are priority classes of whose peaks something else holds: koord-prod, koord-mid, koord-batch, koord-free, none (pods without a class)
	// and system (what is no pod). Default empty.
	Classes map[string]PredictClass `json:"classes,omitempty"`
}

// PredictClass is what holds of one class. What is left out is as for all.
type PredictClass struct {
	// SafetyMarginPercent is added to its peaks. Range 0..1000.
	SafetyMarginPercent *int64 `json:"safetyMarginPercent,omitempty"`
	// CPUPercentile is its peak of CPU: 60, 90, 95, 98 or 100.
	CPUPercentile *int64 `json:"cpuPercentile,omitempty"`
	// MemoryPercentile is the same for memory.
	MemoryPercentile *int64 `json:"memoryPercentile,omitempty"`
}

// Classes of Predict.Classes beside those of priority.
const (
	PredictNone   = "none"
	PredictSystem = "system"
)

// predictClasses are all.
var predictClasses = [...]string{
	protocol.PriorityProd.String(), protocol.PriorityMid.String(), protocol.PriorityBatch.String(), protocol.PriorityFree.String(), PredictNone, PredictSystem,
}

// predict: a training needs six samples.
func (k *checker) predict(c *Predict, tick time.Duration) {
	const month = 30 * 24 * time.Hour
	if c.Enable {
		k.within("predict.interval", c.Interval, max(10*time.Second, 6*tick), time.Hour)
	}
	k.within("predict.coldStart", c.ColdStart, 0, month)
	all := PredictClass{&c.SafetyMarginPercent, &c.CPUPercentile, &c.MemoryPercentile}
	k.peaks("predict.", &all)
	for _, name := range slices.Sorted(maps.Keys(c.Classes)) {
		k.oneOf("predict.classes", name, predictClasses[:]...)
		one := c.Classes[name]
		k.peaks("predict.classes."+name+".", &one)
	}
	k.within("predict.cpuHalfLife", c.CPUHalfLife, time.Minute, month)
	k.within("predict.memoryHalfLife", c.MemoryHalfLife, time.Minute, month)
}

func (k *checker) peaks(path string, c *PredictClass) {
	if p := c.SafetyMarginPercent; p != nil && (*p < 0 || *p > 1000) {
		k.fail(path+"safetyMarginPercent", *p, "0..1000")
	}
	percentile := func(key string, p *int64) {
		if p != nil && !slices.Contains([]int64{60, 90, 95, 98, 100}, *p) {
			k.fail(path+key, *p, "60, 90, 95, 98 or 100")
		}
	}
	percentile("cpuPercentile", c.CPUPercentile)
	percentile("memoryPercentile", c.MemoryPercentile)
}
