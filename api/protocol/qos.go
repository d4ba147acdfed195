// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

// QoS is Koordinator's QoS class of a pod.
type QoS uint8

// The classes; QoSNone means not labelled.
const (
	QoSNone QoS = iota
	QoSLSE
	QoSLSR
	QoSLS
	QoSBE
	QoSSystem
)

// ParseQoS reads a label value. The empty string is QoSNone and ok; an unknown value is QoSNone and not ok.
func ParseQoS(s string) (QoS, bool) {
	switch s {
	case "":
		return QoSNone, true
	case "LSE":
		return QoSLSE, true
	case "LSR":
		return QoSLSR, true
	case "LS":
		return QoSLS, true
	case "BE":
		return QoSBE, true
	case "SYSTEM":
		return QoSSystem, true
	default:
		return QoSNone, false
	}
}

// String is the label value; QoSNone is the empty string.
func (q QoS) String() string {
	switch q {
	case QoSLSE:
		return "LSE"
	case QoSLSR:
		return "LSR"
	case QoSLS:
		return "LS"
	case QoSBE:
		return "BE"
	case QoSSystem:
		return "SYSTEM"
	default:
		return ""
	}
}

// KubeQoS is Kubernetes' own QoS class of a pod.
type KubeQoS uint8

// The classes; KubeUnknown when nothing tells.
const (
	KubeUnknown KubeQoS = iota
	KubeGuaranteed
	KubeBurstable
	KubeBestEffort
)

// String is Kubernetes' spelling; KubeUnknown is "Unknown".
func (k KubeQoS) String() string {
	switch k {
	case KubeGuaranteed:
		return "Guaranteed"
	case KubeBurstable:
		return "Burstable"
	case KubeBestEffort:
		return "BestEffort"
	default:
		return "Unknown"
	}
}

// DefaultQoS is the class of a pod without a QoS label: Guaranteed is LSR, Burstable LS, BestEffort BE.
func (k KubeQoS) DefaultQoS() QoS {
	switch k {
	case KubeGuaranteed:
		return QoSLSR
	case KubeBurstable:
		return QoSLS
	case KubeBestEffort:
		return QoSBE
	default:
		return QoSNone
	}
}

// PriorityClass is Koordinator's priority band.
type PriorityClass uint8

// The bands; PriorityNone is outside all of them.
const (
	PriorityNone PriorityClass = iota
	PriorityProd
	PriorityMid
	PriorityBatch
	PriorityFree
)

// ParsePriorityClass reads koord-prod, koord-mid, koord-batch, koord-free or the empty string (PriorityNone).
func ParsePriorityClass(s string) (PriorityClass, bool) {
	switch s {
	case "":
		return PriorityNone, true
	case "koord-prod":
		return PriorityProd, true
	case "koord-mid":
		return PriorityMid, true
	case "koord-batch":
		return PriorityBatch, true
	case "koord-free":
		return PriorityFree, true
	default:
		return PriorityNone, false
	}
}

// String is the label value; PriorityNone is the empty string.
func (p PriorityClass) String() string {
	switch p {
	case PriorityProd:
		return "koord-prod"
	case PriorityMid:
		return "koord-mid"
	case PriorityBatch:
		return "koord-batch"
	case PriorityFree:
		return "koord-free"
	default:
		return ""
	}
}
