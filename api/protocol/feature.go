// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"strings"
)

// Feature is one thing the node plugin does to a container; names are used in opt-outs, configuration and metrics.
type Feature uint8

// The features.
const (
	FeatureBatch Feature = iota
	FeatureCPUSet
	FeatureIdentity
	FeatureBurst
	FeatureNormalization
	FeatureMemory
	FeatureLLC
	FeatureBlkIO
	FeatureOOMScore
	FeatureCoreSched
	FeatureDevices
	FeatureNetwork
	// NumFeatures is their number.
	NumFeatures
)

// featureNames is the compiled table of names, in the order of the constants.
var featureNames = [NumFeatures]string{
	"batch", "cpuset", "cpu-identity", "cpu-burst", "cpu-normalization", "memory-qos", "llc", "blkio", "oom-score",
	"core-sched", "devices", "network-qos",
}

// String is the name of the feature, "unknown" for a value that is none.
func (f Feature) String() string {
	if f >= NumFeatures {
		return "unknown"
	}
	return featureNames[f]
}

// ParseFeature reads a feature name.
func ParseFeature(s string) (Feature, bool) {
	for f, name := range featureNames {
		if s == name {
			return Feature(f), true
		}
	}
	return 0, false
}

// Features lists every feature in the order of the constants.
func Features() []Feature {
	out := make([]Feature, 0, NumFeatures)
	for f := range NumFeatures {
		out = append(out, f)
	}
	return out
}

// FeatureSet is a set of features; the zero value is empty.
type FeatureSet uint32

// AllFeatures holds every feature.
const AllFeatures FeatureSet = 1<<NumFeatures - 1

// Has reports whether f is in the set.
func (s FeatureSet) Has(f Feature) bool { return f < NumFeatures && s&(1<<f) != 0 }

// With is the set with f added.
func (s FeatureSet) With(f Feature) FeatureSet {
	if f >= NumFeatures {
		return s
	}
	return s | 1<<f
}

// Without is the set with f removed.
func (s FeatureSet) Without(f Feature) FeatureSet { return s &^ (1 << f) }

// Empty reports whether nothing is in the set.
func (s FeatureSet) Empty() bool { return s&AllFeatures == 0 }

// List is the features of the set in the order of the constants.
func (s FeatureSet) List() []Feature {
	var out []Feature
	for f := range NumFeatures {
		if s.Has(f) {
			out = append(out, f)
		}
	}
	return out
}

// String is the comma list of names, "true" for all features, empty for none.
func (s FeatureSet) String() string {
	if s&AllFeatures == AllFeatures {
		return "true"
	}
	var b strings.Builder
	for _, f := range s.List() {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// readFeatureSet reads "true" (all), "false" or "" (none) or a comma list of feature names. It also returns the first name that is no feature; the known ones are in the set.
func readFeatureSet(s string) (set FeatureSet, unknown string) {
	switch s {
	case "true":
		return AllFeatures, ""
	case "false", "":
		return 0, ""
	}
	for name := range strings.SplitSeq(s, ",") {
		f, ok := ParseFeature(strings.TrimSpace(name))
		switch {
		case ok:
			set = set.With(f)
		case unknown == "":
			unknown = name
			if unknown == "" {
				unknown = "(empty)"
			}
		}
	}
	return set, unknown
}
