// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"math"
	"strconv"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// SystemQoS is the annotation node.koordinator.sh/system-qos-resource: the CPUs of SYSTEM pods.
type SystemQoS struct {
	// CPUSet is a kernel list ("0-1,8").
	CPUSet string
	// Exclusive: nobody else may use them. It is true when the annotation does not say.
	Exclusive bool
}

// ParseSystemQoS reads {"cpuset":"0-1","cpusetExclusive":true}. An empty text is no set.
func ParseSystemQoS(s string) (SystemQoS, error) {
	if s == "" {
		return SystemQoS{}, nil
	}
	var wire struct {
		CPUSet    string `json:"cpuset"`
		Exclusive *bool  `json:"cpusetExclusive"`
	}
	if err := decode(s, &wire); err != nil {
		return SystemQoS{}, err
	}
	if wire.CPUSet == "" {
		return SystemQoS{}, nil
	}
	if err := CheckCPUList(wire.CPUSet); err != nil {
		return SystemQoS{}, fmt.Errorf("cpuset: %w", err)
	}
	return SystemQoS{CPUSet: wire.CPUSet, Exclusive: wire.Exclusive == nil || *wire.Exclusive}, nil
}

// NodeReservation is the annotation node.koordinator.sh/reservation: what its administrator keeps from the pods of a node.
type NodeReservation struct {
	// CPUs is a kernel list of what nobody else may use, empty for none.
	CPUs string
	// MilliCPU is the amount without naming CPUs; where some are named, their number counts instead (upstream).
	MilliCPU int64
}

// ParseNodeReservation reads {"resources":{"cpu":"2"},"reservedCPUs":"0-1"}; applyPolicy says what the scheduler makes of it, and other
// resources are the manager's. An empty text is none.
func ParseNodeReservation(s string) (NodeReservation, error) {
	if s == "" {
		return NodeReservation{}, nil
	}
	var wire struct {
		Resources struct {
			CPU strategy.Quantity `json:"cpu"`
		} `json:"resources"`
		ReservedCPUs string `json:"reservedCPUs"`
	}
	if err := decode(s, &wire); err != nil {
		return NodeReservation{}, err
	}
	out := NodeReservation{CPUs: wire.ReservedCPUs}
	if out.CPUs != "" {
		if err := CheckCPUList(out.CPUs); err != nil {
			return NodeReservation{}, fmt.Errorf("reservedCPUs: %w", err)
		}
		return out, nil
	}
	if text := string(wire.Resources.CPU); text != "" {
		var err error
		if out.MilliCPU, err = strategy.ParseMilli(text); err != nil {
			return NodeReservation{}, fmt.Errorf("resources.cpu: %w", err)
		}
	}
	return out, nil
}

// maxNormalization bounds a ratio: no two CPUs of one cluster are further apart.
const maxNormalization = 100

// ParseNormalizationRatio reads node.koordinator.sh/cpu-normalization-ratio, "1.20", in hundredths: 120. Empty and "-1"
// are 0, off.
func ParseNormalizationRatio(s string) (hundredths int64, err error) {
	if s == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil, math.IsNaN(f):
		return 0, fmt.Errorf("%s is no number", quote(s))
	case f == -1:
		return 0, nil
	case f <= 0 || f > maxNormalization:
		return 0, fmt.Errorf("%s, want -1 or a ratio above 0, at most %d", quote(s), maxNormalization)
	}
	return int64(math.Round(f * 100)), nil
}
