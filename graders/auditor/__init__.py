"""The auditor: what earned this number?"""
