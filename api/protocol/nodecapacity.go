// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"strconv"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// BatchAmounts are batch resources: whole milli-cores and bytes.
type BatchAmounts struct{ MilliCPU, Memory int64 }

// ThirdParty is what another system has booked of a node.
type ThirdParty struct {
	Name     string
	Priority PriorityClass
	Batch    BatchAmounts
}

// ParseThirdParty reads node.koordinator.sh/thirdPartyAllocations:
// {"allocations":[{"name":"hadoop-yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1000"}}]}. An empty
// text is none.
func ParseThirdParty(s string) ([]ThirdParty, error) {
	if s == "" {
		return nil, nil
	}
	var wire struct {
		Allocations []struct {
			Name      string                       `json:"name"`
			Priority  string                       `json:"priority"`
			Resources map[string]strategy.Quantity `json:"resources"`
		} `json:"allocations"`
	}
	if err := decode(s, &wire); err != nil {
		return nil, err
	}
	out := make([]ThirdParty, 0, len(wire.Allocations))
	for _, a := range wire.Allocations {
		if err := checkName(a.Name, true); err != nil {
			return nil, err
		}
		class, err := readPriorityClass(a.Priority)
		if err != nil {
			return nil, fmt.Errorf("allocation %s: priority: %w", quote(a.Name), err)
		}
		batch, err := batchFrom(a.Resources)
		if err != nil {
			return nil, fmt.Errorf("allocation %s: %w", quote(a.Name), err)
		}
		out = append(out, ThirdParty{Name: a.Name, Priority: class, Batch: batch})
	}
	return out, nil
}

// batchFrom picks batch resources; those that are not there are 0.
func batchFrom(m map[string]strategy.Quantity) (out BatchAmounts, err error) {
	for name, to := range map[string]*int64{ResourceBatchCPU: &out.MilliCPU, ResourceBatchMemory: &out.Memory} {
		v, err := amount(m, name)
		if err != nil {
			return BatchAmounts{}, err
		}
		if v != nil {
			*to = *v
		}
	}
	return out, nil
}

// ParseOriginExtended reads node.koordinator.sh/originExtendedAllocatable, see [FormatOriginExtended]. An empty text is none.
func ParseOriginExtended(s string) (BatchAmounts, error) {
	if s == "" {
		return BatchAmounts{}, nil
	}
	var wire struct {
		Resources map[string]strategy.Quantity `json:"resources"`
	}
	if err := decode(s, &wire); err != nil {
		return BatchAmounts{}, err
	}
	return batchFrom(wire.Resources)
}

// FormatOriginExtended writes what a node has of batch resources before others' bookings are taken off:
// {"resources":{"kubernetes.io/batch-cpu":"25000","kubernetes.io/batch-memory":"33000000000"}}.
func FormatOriginExtended(b BatchAmounts) string {
	return encode(map[string]map[string]string{"resources": {
		ResourceBatchCPU: strconv.FormatInt(b.MilliCPU, 10), ResourceBatchMemory: strconv.FormatInt(b.Memory, 10),
	}})
}

// ParseReservedMemory reads the memory of node.koordinator.sh/reservation, {"resources":{"memory":"2Gi"}}, in bytes. An empty
// text is none; what it says of CPUs [ParseNodeReservation] reads.
func ParseReservedMemory(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	var wire struct {
		Resources struct {
			Memory strategy.Quantity `json:"memory"`
		} `json:"resources"`
	}
	if err := decode(s, &wire); err != nil {
		return 0, err
	}
	if wire.Resources.Memory == "" {
		return 0, nil
	}
	v, err := wire.Resources.Memory.Value()
	if err != nil {
		return 0, fmt.Errorf("resources.memory: %w", err)
	}
	return v, nil
}

// CPUBasicInfo is node.koordinator.sh/cpu-basic-info of a NodeResourceTopology, as far as normalisation goes by it.
type CPUBasicInfo struct {
	Model       string `json:"cpuModel"`
	HyperThread bool   `json:"hyperThreadEnabled"`
	Turbo       bool   `json:"turboEnabled"`
}

// ParseCPUBasicInfo reads {"cpuModel":"Intel …","hyperThreadEnabled":true,"turboEnabled":true}. An empty text is no model.
func ParseCPUBasicInfo(s string) (CPUBasicInfo, error) {
	var out CPUBasicInfo
	if s == "" {
		return out, nil
	}
	if err := decode(s, &out); err != nil {
		return CPUBasicInfo{}, err
	}
	return out, nil
}

// FormatAmplification writes node.koordinator.sh/resource-amplification-ratio from hundredths: {"cpu":1.50}.
func FormatAmplification(hundredths map[string]int64) string {
	out := make(map[string]ratioText, len(hundredths))
	for name, r := range hundredths {
		out[name] = ratioText(FormatRatio(r))
	}
	return encode(out)
}

// ratioText is a number that is written as it stands.
type ratioText string

// MarshalJSON writes the number.
func (r ratioText) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// FormatRatio writes a ratio from hundredths: 120 is "1.20".
func FormatRatio(hundredths int64) string {
	return fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100)
}
