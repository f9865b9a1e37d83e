"""CUPTI's own exception."""


class cuptiError(Exception):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"CUPTI status {status}")
